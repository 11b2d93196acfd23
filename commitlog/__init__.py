"""commitlog: the commit layer for object stores."""
