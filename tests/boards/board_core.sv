/* verilator lint_off DECLFILENAME */
/* verilator lint_off UNUSEDSIGNAL */
/* verilator lint_off UNDRIVEN */
// A FIFO of beats from what is received to what is sent; while ``hold`` is 1 it takes none.
module rocinante (@CORE@);
  reg hold;
  reg [577:0] beats [0:1023];
  reg [9:0] head, tail;
  assign s_axis_rx__tready = ~hold && (tail + 10'd1 != head);
  assign m_axis_tx__tvalid = head != tail;
  assign {m_axis_tx__tuser, m_axis_tx__tlast, m_axis_tx__tkeep, m_axis_tx__tdata} = beats[head];
  always @(posedge clk)
    if (rst) begin
      head <= 0;
      tail <= 0;
    end else begin
      if (s_axis_rx__tvalid && s_axis_rx__tready) begin
        beats[tail] <= {s_axis_rx__tuser, s_axis_rx__tlast, s_axis_rx__tkeep, s_axis_rx__tdata};
        tail <= tail + 1;
      end
      if (m_axis_tx__tvalid && m_axis_tx__tready) head <= head + 1;
    end
endmodule
