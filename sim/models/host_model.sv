// Host side of one card's host port (hdl/ports/host.py): memory, completions, register accesses,
// interrupts. The behaviour is host_model.cpp; vectors are Amaranth structures, first field lowest.
`timescale 1ps / 1ps

// C++ writes whole bytes, and as many as the widest port has.
/* verilator lint_off UNUSEDSIGNAL */
module host_model #(
    parameter int WIDTH = 512,
    parameter int ID = 0
) (
    input logic clk,
    input logic rst,
    output logic event_o,

    input  logic [92:0] rd_req__payload,
    input  logic rd_req__valid,
    output logic rd_req__ready,
    output logic [WIDTH+9:0] rd_rsp__payload,
    output logic rd_rsp__valid,
    input  logic [WIDTH+WIDTH/8+90:0] wr__payload,
    input  logic wr__valid,
    output logic wr__ready,
    output logic [79:0] mmio__req__payload,
    output logic mmio__req__valid,
    input  logic mmio__req__ready,
    input  logic [31:0] mmio__rsp__payload,
    input  logic mmio__rsp__valid,
    output logic mmio__rsp__ready,
    output logic [WIDTH+WIDTH/8+39:0] push__payload,
    output logic push__valid,
    input  logic push__ready
);
    import "DPI-C" function void host_cycle(
        input int id, input int reset, input longint unsigned now, input int width,
        input bit rd_req_fire, input bit wr_fire, input bit mmio_req_fire, input bit mmio_rsp_fire,
        input bit push_fire,
        input byte unsigned rd_tag, input byte unsigned rd_function,
        input longint unsigned rd_addr, input shortint unsigned rd_length,
        input byte unsigned wr_stream, input byte unsigned wr_function,
        input longint unsigned wr_addr, input shortint unsigned wr_length, input bit [511:0] wr_data,
        input longint unsigned wr_strb, input bit wr_first, input bit wr_last,
        input int unsigned mmio_rsp,
        output bit rd_req_ready, output bit wr_ready,
        output bit rsp_valid, output byte unsigned rsp_tag, output bit [511:0] rsp_data,
        output bit rsp_last, output bit rsp_error,
        output bit mmio_valid, output byte unsigned mmio_function, output byte unsigned mmio_bar,
        output int unsigned mmio_addr, output bit mmio_write, output byte unsigned mmio_strb,
        output int unsigned mmio_data,
        output bit push_valid, output byte unsigned push_function, output int unsigned push_addr,
        output bit [511:0] push_data, output longint unsigned push_strb, output bit signal
    );

    localparam int DATA = 89;  // first bit of a write beat's data
    localparam int STRB = DATA + WIDTH;
    localparam int FIRST = STRB + WIDTH / 8;

    bit rd_req_ready, wr_ready, rsp_valid, rsp_last, rsp_error, mmio_valid, mmio_write, signal;
    byte unsigned rsp_tag, mmio_function, mmio_bar, mmio_strb;
    int unsigned mmio_addr, mmio_data;
    bit [511:0] rsp_data, push_data;
    bit push_valid;
    byte unsigned push_function;
    int unsigned push_addr;
    longint unsigned push_strb;

    assign mmio__rsp__ready = 1'b1;

    initial begin
        rd_req__ready = 0;
        rd_rsp__valid = 0;
        wr__ready = 0;
        mmio__req__valid = 0;
        push__valid = 0;
        event_o = 0;
    end

    always @(posedge clk) begin
        host_cycle(
            ID, 32'(rst), $time, WIDTH,
            rd_req__valid & rd_req__ready, wr__valid & wr__ready,
            mmio__req__valid & mmio__req__ready, mmio__rsp__valid & ~rst,
            push__valid & push__ready,
            rd_req__payload[7:0], rd_req__payload[15:8], rd_req__payload[79:16],
            16'(rd_req__payload[92:80]),
            8'(wr__payload[3:0]), wr__payload[11:4], wr__payload[75:12], 16'(wr__payload[88:76]),
            512'(wr__payload[DATA+:WIDTH]), 64'(wr__payload[STRB+:WIDTH/8]),
            wr__payload[FIRST], wr__payload[FIRST+1],
            mmio__rsp__payload,
            rd_req_ready, wr_ready, rsp_valid, rsp_tag, rsp_data, rsp_last, rsp_error,
            mmio_valid, mmio_function, mmio_bar, mmio_addr, mmio_write, mmio_strb, mmio_data,
            push_valid, push_function, push_addr, push_data, push_strb,
            signal
        );
        rd_req__ready <= rd_req_ready;
        wr__ready <= wr_ready;
        rd_rsp__valid <= rsp_valid;
        // Without valid the outputs of host_cycle are undefined, and may be others in each cycle.
        if (rsp_valid) rd_rsp__payload <= {rsp_error, rsp_last, rsp_data[WIDTH-1:0], rsp_tag};
        mmio__req__valid <= mmio_valid;
        if (mmio_valid) begin
            mmio__req__payload <= {
                mmio_data, mmio_strb[3:0], mmio_write, mmio_addr, mmio_bar[2:0], mmio_function
            };
        end
        push__valid <= push_valid;
        if (push_valid) begin
            push__payload <= {
                push_strb[WIDTH/8-1:0], push_data[WIDTH-1:0], push_addr, push_function
            };
        end
        event_o <= signal;
    end
endmodule
