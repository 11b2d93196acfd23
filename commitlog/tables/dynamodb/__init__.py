"""A table on DynamoDB, or on a server that speaks its protocol.

`table` is the table, `calls` sends its requests, `expressions` writes its conditions, and `lifecycle`
creates and checks the table.
"""
