#include "health/health_record.h"

#include <type_traits>

#include "base/error.h"

namespace dslaunch::health {
namespace {

// The largest credible figure. Figures are counts, rates in bytes a second (at most 280 TB/s), or
// times in nanoseconds (at most three days). Their sums stay far below the largest int64_t.
constexpr int64_t kFigureMax = int64_t{1} << 48;

void require_figure(int64_t figure) {
    if (figure < 0 || figure > kFigureMax)
        fail(ExitCode::kInternal, "a health record contains the impossible value {}", figure);
}
template <typename Other>
void require_figure(const Other&) {}

template <size_t Index = 0>
HealthRecord read_members(WireReader& reader, uint8_t kind) {
    if constexpr (Index == std::variant_size_v<HealthRecord>) {
        fail(ExitCode::kInternal, "received a health record of the unknown kind {}", kind);
    } else {
        if (kind != Index + 1) return read_members<Index + 1>(reader, kind);
        std::variant_alternative_t<Index, HealthRecord> one;
        fields::read(reader, one);
        if constexpr (!std::is_same_v<decltype(one), HealthFault>) {
            std::apply([](const auto&... member) { (require_figure(member), ...); },
                       fields::of(one));
        }
        return one;
    }
}

}  // namespace

const char* health_op_name(HealthOp op) {
    static constexpr const char* kNames[] = {"broadcast",  "send_receive", "barrier",
                                             "all_reduce", "all_gather",   "reduce_scatter",
                                             "all_to_all"};
    return kNames[static_cast<size_t>(op)];
}

double bus_factor(HealthOp op, int world_size) {
    const double n = world_size;
    if (op == HealthOp::kBarrier) return 0;
    if (op == HealthOp::kBroadcast || op == HealthOp::kSendReceive) return 1;
    return op == HealthOp::kAllReduce ? 2 * (n - 1) / n : (n - 1) / n;
}

void write(WireWriter& wire, const HealthRecord& record) {
    wire.u8(static_cast<uint8_t>(record.index() + 1));
    std::visit([&](const auto& one) { fields::write(wire, one); }, record);
}

void read(WireReader& wire, HealthRecord& record) {
    const uint8_t kind = wire.u8();
    record = read_members(wire, kind);
}

}  // namespace dslaunch::health
