-- Format 3, concluded: who may use jobs may use schedules; see 2_rights.sql.
DO $$
DECLARE
    _granted record;
BEGIN
    FOR _granted IN
        SELECT CASE g.grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(g.grantee) END AS whom,
               g.privilege_type AS what
        FROM information_schema.role_table_grants g
        WHERE g.table_schema = 'tenure' AND g.table_name = 'job' AND g.grantee <> current_user
          AND g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE 'GRANT ' || _granted.what || ' ON tenure.schedule, tenure.schedule_decision TO '
            || _granted.whom;
    END LOOP;
END
$$;
