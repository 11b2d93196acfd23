"""An HTTP proxy on loopback that makes a nearby server slow, or its network unreliable.

For benchmarks, it adds a latency to each kind of request. For tests, it loses, delays or duplicates
requests and their responses: those that a test names (`ProxyFault`), or random ones from a seed
(`Hazard`). It runs in its own process, so that it takes no time from the interpreter under test, and
ends with the process that started it.

Guarantees: it duplicates a request only if a fault says so, latencies of concurrent requests overlap,
and requests that it lets through are unchanged (except ``Expect``, which it answers itself). It holds
whole bodies in memory. It does not support TLS.

The modules: `process` (starts and controls the proxy), `relay` (the process itself), `faults` (faults,
and when they strike), `http` (messages).
"""

from commitlog.testing.proxy.faults import Action, Hazard, ProxyFault, Strike
from commitlog.testing.proxy.process import Proxy

__all__ = ["Action", "Hazard", "Proxy", "ProxyFault", "Strike"]
