"""What is sent again and when: policy, timers, arithmetic of packets."""
