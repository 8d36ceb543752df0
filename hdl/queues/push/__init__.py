"""WQEs that come with their doorbell (extension PUSH): docs/queues.md."""
