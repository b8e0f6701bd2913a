-- Settings of the functions that the store calls. They also apply to the functions that these call.
--
-- Every look-up has its index, named beside it, and a plan that suits one key suits all. Without the
-- settings, a plan from a small table would later scan all of it, and some statements would be planned in
-- every call. Where enable_sort is off, rows must come in the order of the index, because the statement stops
-- early or locks what it reads.
--
-- lock_timeout ends a call before the client gives it up, also if a pooler forbids settings of the session.
-- It is shorter where the caller can continue without a job that a transaction of a user has locked.
DO $$
DECLARE
    _call regprocedure;
    _name text;
BEGIN
    FOR _call, _name IN
        SELECT p.oid, p.proname FROM pg_proc p
        WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname IN (
            'lease_acquire', 'lease_discard', 'lease_hold', 'lease_mark', 'lease_prune',
            'lease_release', 'lease_renew', 'job_cancel', 'job_claim', 'job_count_tagged',
            'job_counts', 'job_delete', 'job_find', 'job_get', 'job_hold', 'job_insert', 'job_note',
            'job_orphans', 'job_prune', 'job_requeue', 'job_set_aside', 'job_settle', 'job_sift',
            'job_stranded', 'queue_pause', 'replica_beat', 'replica_list',
            'run_stats_read', 'schedule_commit', 'schedule_declare', 'schedule_read')
    LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SET lock_timeout = %s SET plan_cache_mode = force_generic_plan '
            'SET enable_seqscan = off SET enable_bitmapscan = off '
            'SET enable_hashjoin = off SET enable_mergejoin = off', _call,
            CASE WHEN _name IN ('job_cancel', 'job_requeue', 'job_settle') THEN 2000 ELSE 4000 END);
        IF _name IN ('job_claim', 'job_counts', 'job_delete', 'job_prune', 'replica_beat') THEN
            EXECUTE format('ALTER FUNCTION %s SET enable_sort = off', _call);
        END IF;
    END LOOP;
END
$$;
