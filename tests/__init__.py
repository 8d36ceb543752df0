"""The test suite; its folders mirror hdl/, firmware/ and sim/."""
