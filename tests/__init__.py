"""The test suite; its folders mirror hdl/, firmware/ and sim/."""

COMMANDS = {
    "test": ("tests.suite", "Run the test suite, or a part of it."),
    "prove": ("tests.proofs.catalogue", "Prove properties of small components."),
    "faults": ("tests.faults.command", "Break the gateware: do tests notice?"),
}
