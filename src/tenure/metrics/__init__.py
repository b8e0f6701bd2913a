"""What is measured, free of any monitoring system: definitions, counting, the queues of the store.

`tenure.prometheus` and `tenure.otel` write the same metrics in their own ways.
"""
