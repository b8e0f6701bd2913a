"""When timers tick: rules, cron expressions, zones, blackouts and spreads."""
