// The compiled gates as a function from arrays to arrays: the clock runs here, with no Python in the loop.
//
// The model is `lanes`, LANES copies of a unit beside each other, which sim/batch.py writes around its Verilog. Each
// copy has its own share of the payloads, and all have the same clock, so what Verilator does once a clock is shared.
// Payloads are rows of 64-bit words, the lowest first, as they lie in the ports of the model.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "Vlanes.h"
#include "verilated.h"

namespace {

template <typename Port>
constexpr int words() {
    return sizeof(std::remove_reference_t<Port>) / 8 / LANES;
}
constexpr int INPUT_WORDS = words<decltype(Vlanes::i_payload)>(), OUTPUT_WORDS = words<decltype(Vlanes::o_payload)>();
constexpr uint32_t ALL = LANES == 32 ? ~0u : (1u << LANES) - 1;

struct Lane {
    const uint64_t *next, *end;      // payloads yet to be taken
    uint64_t *result, *result_end;  // where results go
};

// Marsaglia's xorshift64: for stalls, where only that they vary matters.
struct Random {
    uint64_t state;
    uint64_t operator()() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
};

struct Batch {
    VerilatedContext context;
    Vlanes gates{&context};

    // The inputs are in registers of the module around the unit, so all that a clock edge changes settles at once, and
    // what the outputs show is what the next edge finds. Without the registers all logic would be evaluated twice.
    void clock() {
        gates.clk = 0;
        gates.eval();
        gates.clk = 1;
        gates.eval();
    }
};

}  // namespace

extern "C" {

void *batch_open() {
    Batch *batch = new Batch;
    Vlanes &gates = batch->gates;
    gates.i_valid = 0;
    gates.o_ready = 0;
    gates.rst = 1;
    for (int clocks = 0; clocks < 4; clocks++) batch->clock();
    gates.rst = 0;
    batch->clock();
    return batch;
}

void batch_close(void *handle) {
    Batch *batch = static_cast<Batch *>(handle);
    batch->gates.final();
    delete batch;
}

// Runs until all results have come, or none comes and no payload is taken for `patience` clocks; then for `patience`
// more clocks if `drain` says so, in which none may come.
//
//   payloads  of INPUT_WORDS each; lane k of LANES has those from count * k / LANES on
//   results   room for `wanted` of OUTPUT_WORDS each, shared out likewise; how many came in each lane is in `received`
//   stalls    0: offer and take in every clock; else the seed of random stalls at both ends
//   report    clocks; results that nothing had asked for
//   ends      null, or of each lane's clocks, how many were of each kind: operands idle, taken or refused; in each of
//             these nothing came, a result was taken or waited
void batch_run(void *handle, const uint64_t *payloads, int64_t count, uint64_t *results, int64_t wanted,
               uint64_t stalls, int64_t patience, int64_t drain, int64_t *received, int64_t *report, int64_t *ends) {
    Batch *batch = static_cast<Batch *>(handle);
    Vlanes &gates = batch->gates;
    uint64_t *input = reinterpret_cast<uint64_t *>(&gates.i_payload);
    const uint64_t *output = reinterpret_cast<const uint64_t *>(&gates.o_payload);
    Random random{stalls};
    Lane lanes[LANES];
    uint32_t unfinished = 0;  // lanes with payloads that have not been taken
    int64_t missing = wanted, unasked = 0, clocks = 0, idle = 0;
    for (int k = 0; k < LANES; k++) {
        lanes[k] = {payloads + count * k / LANES * INPUT_WORDS, payloads + count * (k + 1) / LANES * INPUT_WORDS,
                    results + wanted * k / LANES * OUTPUT_WORDS, results + wanted * (k + 1) / LANES * OUTPUT_WORDS};
        if (lanes[k].next != lanes[k].end) unfinished |= 1u << k;
    }
    uint32_t offered = 0;
    bool taking = false;
    while (idle < patience && (missing || unfinished || drain)) {
        uint32_t taken = offered & gates.i_ready, come = taking ? gates.o_valid : 0;
        if (ends) {
            const uint32_t given[] = {ALL & ~offered, taken, offered & ~taken};
            const uint32_t got[] = {ALL & ~gates.o_valid, come, gates.o_valid & ~come};
            for (int kind = 0; kind < 9; kind++) ends[kind] += __builtin_popcount(given[kind / 3] & got[kind % 3]);
        }
        bool progress = taken != 0;
        for (uint32_t left = taken; left; left &= left - 1) {
            int k = __builtin_ctz(left);
            lanes[k].next += INPUT_WORDS;
            if (lanes[k].next == lanes[k].end) unfinished &= ~(1u << k);
        }
        for (uint32_t left = come; left; left &= left - 1) {
            int k = __builtin_ctz(left);
            if (lanes[k].result == lanes[k].result_end) {
                unasked++;
                continue;
            }
            std::memcpy(lanes[k].result, output + k * OUTPUT_WORDS, 8 * OUTPUT_WORDS);
            lanes[k].result += OUTPUT_WORDS;
            missing--;
            progress = true;
        }
        idle = progress ? 0 : idle + 1;  // results without end are none
        // An offer stands until it is taken. Each 64 clocks either end changes between hurry and stalls, in all four
        // ways in turn, so that the unit runs at its full rate, fills up, and empties itself.
        bool offer = true;
        taking = true;
        if (stalls) {
            uint64_t draw = random();
            offer = !(clocks >> 6 & 1) || (draw & 3) != 0;
            taking = !(clocks >> 7 & 1) || (draw >> 8 & 1) != 0;
        }
        offered &= ~taken;
        uint32_t fresh = offer ? unfinished & ~offered : 0;
        for (uint32_t left = fresh; left; left &= left - 1) {
            int k = __builtin_ctz(left);
            std::memcpy(input + k * INPUT_WORDS, lanes[k].next, 8 * INPUT_WORDS);
        }
        offered |= fresh;
        gates.i_valid = offered;
        gates.o_ready = taking ? ALL : 0;
        batch->clock();
        clocks++;
    }
    gates.i_valid = 0;
    gates.o_ready = 0;
    batch->clock();
    for (int k = 0; k < LANES; k++) {
        received[k] = (lanes[k].result - (results + wanted * k / LANES * OUTPUT_WORDS)) / OUTPUT_WORDS;
    }
    report[0] = clocks;
    report[1] = unasked;
}

// Fills the unit for `count` clocks with payloads, its output taken or not, and resets it while payloads are still
// offered. Returns how many results came in the next `clocks` clocks, where there should be none.
int64_t batch_reset(void *handle, const uint64_t *payloads, int64_t count, int64_t take, int64_t clocks) {
    Batch *batch = static_cast<Batch *>(handle);
    Vlanes &gates = batch->gates;
    uint64_t *input = reinterpret_cast<uint64_t *>(&gates.i_payload);
    gates.i_valid = count ? ALL : 0;
    gates.o_ready = take ? ALL : 0;
    for (int64_t clock = 0; clock < count; clock++) {
        for (int k = 0; k < LANES; k++) {
            std::memcpy(input + k * INPUT_WORDS, payloads + clock * INPUT_WORDS, 8 * INPUT_WORDS);
        }
        batch->clock();
    }
    gates.rst = 1;
    batch->clock();
    gates.rst = 0;
    gates.i_valid = 0;
    gates.o_ready = ALL;
    int64_t came = 0;
    for (int64_t clock = 0; clock < clocks; clock++) {
        batch->clock();
        came += __builtin_popcount(gates.o_valid);
    }
    return came;
}

#ifdef SELECTED
void batch_select(void *handle, uint32_t number) {
    static_cast<Batch *>(handle)->gates.selected = number;
}
#endif

}  // extern "C"
