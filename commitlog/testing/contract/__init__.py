"""The contract checks of the ports. `commitlog.testing` exports them.

`store` and `table` have the checks of each port. Those of stores are split by subject:
`store_conditions`, `store_listings`, `store_uploads`; those of tables: `table_items`. `store_run` and
`table_run` describe one run of the checks, and `assertions` has what both share.
"""
