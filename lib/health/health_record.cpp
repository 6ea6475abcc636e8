#include "health/health_record.h"

#include <type_traits>

#include "base/error.h"
#include "base/text/message.h"

namespace dslaunch::health {
namespace {

// The largest credible figure, be it a count, a rate in bytes a second or a time in nanoseconds:
// three days, 280 TB/s. Sums of figures stay far below the end of an int64_t.
constexpr int64_t kFigureMax = int64_t{1} << 48;

void require_figure(int64_t figure) {
    if (figure < 0 || figure > kFigureMax)
        fail(ExitCode::kInternal, "a health record with {}, which nobody can have measured",
             figure);
}
template <typename Other>
void require_figure(const Other&) {}

// Writes a record: the number of its kind, from 1 in the order of HealthRecord, then its members.
void write_record(WireWriter& writer, const HealthRecord& record) {
    writer.u8(static_cast<uint8_t>(record.index() + 1));
    std::visit([&](const auto& one) { fields::write(writer, one); }, record);
}

template <size_t Index = 0>
HealthRecord read_members(WireReader& reader, uint8_t kind) {
    if constexpr (Index == std::variant_size_v<HealthRecord>) {
        fail(ExitCode::kInternal, "a health record of the unknown kind {}", kind);
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

HealthRecord read_record(WireReader& reader) {
    const uint8_t kind = reader.u8();
    return read_members(reader, kind);
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

std::string encode(const HealthRecord& record) {
    WireWriter writer;
    write_record(writer, record);
    return writer.bytes();
}

HealthRecord decode_health(std::string_view payload) {
    WireReader reader(payload, "a health record");
    HealthRecord record = read_record(reader);
    if (!reader.done()) fail(ExitCode::kInternal, "a health record with bytes left over");
    return record;
}

std::string encode_all(const std::vector<HealthRecord>& records) {
    WireWriter writer;
    writer.u32(static_cast<uint32_t>(records.size()));
    for (const HealthRecord& record : records) write_record(writer, record);
    return writer.bytes();
}

std::vector<HealthRecord> decode_all_health(std::string_view payload) {
    WireReader reader(payload, "health records");
    const uint32_t count = reader.u32();
    std::vector<HealthRecord> records;
    for (uint32_t i = 0; i < count; ++i) records.push_back(read_record(reader));
    if (!reader.done()) fail(ExitCode::kInternal, "health records with bytes left over");
    return records;
}

}  // namespace dslaunch::health
