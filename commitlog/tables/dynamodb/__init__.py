"""A table on DynamoDB, or on a server that speaks its protocol."""
