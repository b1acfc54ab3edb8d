// The kernels of one instruction set; compiled once for each, with other flags and another LNS_ISA.
#include "accumulate.h"
#include "convert.h"
#include "elementwise.h"
#include "product.h"

#define LNS_JOIN_(a, b) a##b
#define LNS_JOIN(a, b) LNS_JOIN_(a, b)
#define LNS_TEXT_(a) #a
#define LNS_TEXT(a) LNS_TEXT_(a)

namespace lns {

const Kernels LNS_JOIN(LNS_ISA, _kernels) = {
    LNS_TEXT(LNS_ISA),         LNS_ISA::elementwise, LNS_ISA::product, LNS_ISA::product_tasks, LNS_ISA::accumulate,
    LNS_ISA::accumulate_tasks, LNS_ISA::encode,      LNS_ISA::decode,  LNS_ISA::order,         LNS_ISA::from_order,
};

}  // namespace lns
