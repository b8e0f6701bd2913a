-- Settings of the functions that the store calls; whatever these call has them as well.
--
-- Every look-up has its index, named beside it, and a plan that suits one key suits all. Without the
-- settings, a plan made while a table was small would read all of it later, and some statements would
-- be planned anew in every call. Where enable_sort is off, a statement must come in the order of its
-- index, because it stops early or locks what it reads.
--
-- lock_timeout ends a call before the client gives it up, also where a pooler forbids settings of the
-- session; and sooner where the caller goes on without a job that somebody holds in a transaction of
-- their own.
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
            'job_stranded', 'queue_pause', 'replica_beat', 'replica_join', 'replica_list',
            'schedule_commit', 'schedule_declare', 'schedule_read')
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
