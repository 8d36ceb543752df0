// Which deliberate fault is at work: that of the number in +fault=N, none without it
// (tests/force.py, chosen).
module fault_choice (
    output reg [7:0] number
);
    initial if ($value$plusargs("fault=%d", number) == 0) number = 0;
endmodule
