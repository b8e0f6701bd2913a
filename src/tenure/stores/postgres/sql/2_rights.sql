-- Format 2, concluded: who may use leases may use jobs. Otherwise a role that was granted its rights
-- under format 1 would lack them for the tables added since.
DO $$
DECLARE
    _granted record;
BEGIN
    FOR _granted IN
        SELECT CASE g.grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(g.grantee) END AS whom,
               g.privilege_type AS what
        FROM information_schema.role_table_grants g
        WHERE g.table_schema = 'tenure' AND g.table_name = 'lease' AND g.grantee <> current_user
          AND g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE 'GRANT ' || _granted.what || ' ON tenure.replica, tenure.replica_claim, tenure.job, '
            || 'tenure.job_done, tenure.job_tag, tenure.job_key, tenure.queue_pause TO '
            || _granted.whom;
        IF _granted.what = 'SELECT' THEN
            EXECUTE 'GRANT SELECT ON tenure.job_record TO ' || _granted.whom;
        END IF;
    END LOOP;
END
$$;
