// As lns16_multiply.v, but with a bug: a register is one bit too narrow for what it shall hold.
//
// A word is a sign and, below it, the logarithm to base 2 with 7 fraction bits, plus a bias of 16384; the field 0 is zero.
// Above the range the result saturates, below it becomes zero, and zero times anything is zero.
//
// Three clocks, one product a clock, no handshake.
module lns16_multiply (
    input  wire        clk,
    input  wire        rst_n,
    input  wire [15:0] x,
    input  wire [15:0] y,
    output reg  [15:0] product,
    output reg         overflow,
    output reg         underflow
);
    localparam signed [16:0] BIAS = 17'sd16384;
    localparam signed [16:0] LARGEST = 17'sd32767;

    // 1: what the words are.
    reg               sign_1, zero_1;
    reg        [14:0] log_x, log_y;
    // 2: the sum of the logarithms, with one bias in it.
    reg               sign_2, zero_2;
    reg signed [15:0] sum;

    wire above = sum > LARGEST;
    wire below = sum < 17'sd1;

    always @(posedge clk) begin
        sign_1 <= x[15] ^ y[15];
        zero_1 <= x[14:0] == 15'd0 || y[14:0] == 15'd0;
        log_x  <= x[14:0];
        log_y  <= y[14:0];

        sign_2 <= sign_1;
        zero_2 <= zero_1;
        sum    <= $signed({2'b00, log_x}) + $signed({2'b00, log_y}) - BIAS;

        // 3: back into the range.
        product   <= zero_2 || below ? 16'd0 : {sign_2, above ? 15'h7fff : sum[14:0]};
        overflow  <= !zero_2 && above;
        underflow <= !zero_2 && below;

        if (!rst_n) begin
            product   <= 16'd0;
            overflow  <= 1'b0;
            underflow <= 1'b0;
        end
    end
endmodule
