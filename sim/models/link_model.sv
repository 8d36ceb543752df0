// A card's MAC port (hdl/ports/packet.py) and the wire behind it; the behaviour is link_model.cpp.
`timescale 1ps / 1ps

// C++ writes as many bytes as the widest port has.
/* verilator lint_off UNUSEDSIGNAL */
module link_model #(
    parameter int WIDTH = 512,
    parameter int ID = 0
) (
    input logic clk,
    input logic rst,
    output logic event_o,

    input  logic [WIDTH+WIDTH/8+2:0] mac_tx__payload,
    input  logic mac_tx__valid,
    output logic mac_tx__ready,
    output logic [WIDTH+WIDTH/8+2:0] mac_rx__payload,
    output logic mac_rx__valid,
    input  logic mac_rx__ready
);
    import "DPI-C" function void link_cycle(
        input int id, input int reset, input longint unsigned now, input int width,
        input bit tx_fire, input bit rx_fire,
        input bit [511:0] tx_data, input longint unsigned tx_keep,
        input bit tx_first, input bit tx_last, input bit tx_error,
        output bit tx_ready, output bit rx_valid,
        output bit [511:0] rx_data, output longint unsigned rx_keep,
        output bit rx_first, output bit rx_last, output bit rx_error,
        output bit signal
    );

    localparam int FIRST = WIDTH + WIDTH / 8;

    bit tx_ready, rx_valid, rx_first, rx_last, rx_error, signal;
    bit [511:0] rx_data;
    longint unsigned rx_keep;

    initial begin
        mac_tx__ready = 0;
        mac_rx__valid = 0;
        event_o = 0;
    end

    always @(posedge clk) begin
        link_cycle(
            ID, 32'(rst), $time, WIDTH,
            mac_tx__valid & mac_tx__ready, mac_rx__valid & mac_rx__ready,
            512'(mac_tx__payload[WIDTH-1:0]), 64'(mac_tx__payload[WIDTH+:WIDTH/8]),
            mac_tx__payload[FIRST], mac_tx__payload[FIRST+1], mac_tx__payload[FIRST+2],
            tx_ready, rx_valid, rx_data, rx_keep, rx_first, rx_last, rx_error, signal
        );
        mac_tx__ready <= tx_ready;
        mac_rx__valid <= rx_valid;
        // Without valid the outputs of link_cycle are undefined, and may be others in each cycle.
        if (rx_valid) begin
            mac_rx__payload <= {
                rx_error, rx_last, rx_first, rx_keep[WIDTH/8-1:0], rx_data[WIDTH-1:0]
            };
        end
        event_o <= signal;
    end
endmodule
