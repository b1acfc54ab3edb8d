// A board's gates with their UART pins: bytes go in and come out at the pins, from arrays or from a terminal.
//
// The model is `top`, of fpga/top.py: a clock and two lines. All times are in clocks of the gates.

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

namespace {

constexpr uint32_t NO_STOP = 1u << 8;  // a byte without its stop bit
constexpr int IDLE_SHIFT = 16;         // above: bits of silence before the byte

struct Board {
    VerilatedContext context;
    Vtop gates{&context};
    const int divisor;

    // To the gates: what is on the line in the next `sending` bits, the lowest first, and clocks left of this bit.
    std::deque<uint32_t> waiting;
    uint64_t bits = 1;
    int sending = 0, silence = 0, bit_clocks = 0;
    // From the gates: bits of the byte under way that are still to come, and clocks to the middle of the next.
    int receiving = 0, sample_clocks = 0;
    uint32_t received = 0;
    std::vector<uint8_t> came;
    int64_t broken = 0;
    // Clocks in all, and since there last was anything on either line.
    int64_t clocks = 0, quiet = 0;

    explicit Board(int divisor) : divisor(divisor) { gates.rx = 1; }

    void send() {
        if (bit_clocks) {
            bit_clocks--;
            return;
        }
        bit_clocks = divisor - 1;
        if (!silence && !sending && !waiting.empty()) {
            uint32_t item = waiting.front();
            waiting.pop_front();
            bits = (item & 0xff) << 1 | (item & NO_STOP ? 0 : 1u << 9);
            sending = 10;
            silence = item >> IDLE_SHIFT;
        }
        if (silence) {
            silence--;
            gates.rx = 1;
        } else if (sending) {
            gates.rx = bits & 1;
            bits >>= 1;
            sending--;
        } else {
            gates.rx = 1;
            bit_clocks = 0;
        }
    }

    void receive() {
        if (!receiving) {
            if (!gates.tx) {
                receiving = 10;
                sample_clocks = divisor / 2;
            }
        } else if (--sample_clocks == 0) {
            sample_clocks = divisor;
            received = received >> 1 | (gates.tx ? 1u << 9 : 0);
            if (--receiving == 0) {
                if (received >> 9 & 1) {
                    came.push_back(received >> 1);
                } else {
                    broken++;
                }
            }
        }
    }

    void clock(int64_t count) {
        clocks += count;
        for (; count > 0; count--) {
            send();
            gates.clk = 0;
            gates.eval();
            gates.clk = 1;
            gates.eval();
            receive();
            quiet = sending || silence || receiving || !waiting.empty() ? 0 : quiet + 1;
        }
    }

    // Writes what came; returns whether all could be written.
    bool deliver(int file, const volatile int *stop) {
        size_t done = 0;
        while (done < came.size() && !*stop) {
            ssize_t count = write(file, came.data() + done, came.size() - done);
            if (count > 0) {
                done += count;
            } else if (count < 0 && errno == EAGAIN) {
                pollfd ready{file, POLLOUT, 0};
                poll(&ready, 1, 20);
            } else if (errno != EINTR) {
                return false;
            }
        }
        came.clear();
        return true;
    }
};

}  // namespace

extern "C" {

void *board_open(int64_t divisor) {
    Board *board = new Board(divisor);
    board->clock(1000 * divisor);  // the reset after power-up is over
    return board;
}

void board_close(void *handle) {
    Board *board = static_cast<Board *>(handle);
    board->gates.final();
    delete board;
}

int64_t board_clocks(void *handle) { return static_cast<Board *>(handle)->clocks; }

// Sends items, which are bytes with flags as above, and waits until both lines have been quiet for so many clocks.
// Returns how many bytes came, of which up to `room` are in `answer`; `broken` counts those without a stop bit.
int64_t board_exchange(void *handle, const uint32_t *items, int64_t count, uint8_t *answer, int64_t room,
                       int64_t quiet, int64_t *broken) {
    Board *board = static_cast<Board *>(handle);
    board->came.clear();
    board->broken = 0;
    board->waiting.insert(board->waiting.end(), items, items + count);
    board->quiet = 0;
    do {
        board->clock(1);
    } while (board->quiet < quiet);
    for (int64_t index = 0; index < room && index < int64_t(board->came.size()); index++) {
        answer[index] = board->came[index];
    }
    *broken = board->broken;
    return board->came.size();
}

// Joins the pins to a terminal until `stop` is set, or nobody can write to it any more. Once nothing has happened for so
// many clocks, time goes slowly, so as not to keep a processor busy.
void board_serve(void *handle, int file, int64_t awake, const volatile int *stop) {
    Board *board = static_cast<Board *>(handle);
    const int64_t some = 20 * board->divisor;
    uint8_t buffer[4096];
    while (!*stop) {
        if (board->waiting.size() < sizeof buffer) {
            ssize_t count = read(file, buffer, sizeof buffer);
            if (count > 0) {
                board->waiting.insert(board->waiting.end(), buffer, buffer + count);
            } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
                return;
            }
        }
        if (board->quiet > awake) {
            pollfd ready{file, POLLIN, 0};
            poll(&ready, 1, 2);
        }
        board->clock(some);
        if (!board->deliver(file, stop)) return;
    }
}

}  // extern "C"
