"""What flow steering matches, which this card does not have."""

from sim.programs.pyverbs.absent import refusing

EthSpec = refusing("EthSpec")
Ipv4ExtSpec = refusing("Ipv4ExtSpec")
Ipv6Spec = refusing("Ipv6Spec")
TcpUdpSpec = refusing("TcpUdpSpec")
TunnelSpec = refusing("TunnelSpec")
GreSpec = refusing("GreSpec")
MplsSpec = refusing("MplsSpec")
EspSpec = refusing("EspSpec")
