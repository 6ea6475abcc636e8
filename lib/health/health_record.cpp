#include "health/health_record.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text/wire.h"

namespace dslaunch::health {
namespace {

enum class Tag : uint8_t { kMember = 1, kTiming, kLink, kHost, kFault, kNote, kGpuPair };

struct Encoder {
    WireWriter writer;

    WireWriter& tag(Tag tag) { return writer.u8(static_cast<uint8_t>(tag)); }
    void operator()(const HealthMember& member) {
        tag(Tag::kMember).string(member.device).string(member.address).string(member.backend);
        writer.string(member.facts);
    }
    void operator()(const HealthTiming& timing) {
        tag(Tag::kTiming).u8(static_cast<uint8_t>(timing.op));
        writer.i64(timing.bytes).i64(timing.iterations).i64(timing.nanoseconds);
    }
    void operator()(const LinkSample& link) {
        tag(Tag::kLink).i64(link.from).i64(link.to).i64(link.pass).i64(link.bytes_per_second);
        writer.i64(link.free_bytes_per_second)
            .i64(link.rtt_p50)
            .i64(link.rtt_p99)
            .i64(link.exchanges)
            .i64(link.lost);
        writer.i64(link.duplicated).i64(link.wrong).string(link.error);
    }
    void operator()(const HostSample& host) {
        tag(Tag::kHost).i64(host.node).i64(host.pass).i64(host.nanoseconds);
    }
    void operator()(const HealthFault& fault) {
        tag(Tag::kFault).i64(fault.rank).string(fault.text);
    }
    void operator()(const HealthNote& note) { tag(Tag::kNote).string(note.text); }
    void operator()(const GpuPairSample& pair) {
        tag(Tag::kGpuPair).i64(pair.first).i64(pair.second).i64(pair.bytes_per_second);
    }
};

// The largest figure that is believed, be it a count, a rate in bytes a second or a time in
// nanoseconds: three days, 280 TB/s. Whoever adds figures up stays far below the end of an int64_t.
constexpr int64_t kFigureMax = int64_t{1} << 48;

int64_t read_figure(WireReader& reader) {
    const int64_t figure = reader.i64();
    if (figure < 0 || figure > kFigureMax)
        fail(ExitCode::kInternal, "a health record with {}, which nobody can have measured",
             figure);
    return figure;
}

HealthTiming read_timing(WireReader& reader) {
    HealthTiming timing;
    const uint8_t op = reader.u8();
    if (op > static_cast<uint8_t>(HealthOp::kAllToAll))
        fail(ExitCode::kInternal, "a health record of the unknown operation {}", op);
    timing.op = static_cast<HealthOp>(op);
    timing.bytes = read_figure(reader);
    timing.iterations = read_figure(reader);
    timing.nanoseconds = read_figure(reader);
    return timing;
}

LinkSample read_link(WireReader& reader) {
    LinkSample link;
    for (int64_t* field :
         {&link.from, &link.to, &link.pass, &link.bytes_per_second, &link.free_bytes_per_second,
          &link.rtt_p50, &link.rtt_p99, &link.exchanges, &link.lost, &link.duplicated, &link.wrong})
        *field = read_figure(reader);
    link.error = reader.string();
    return link;
}

HealthRecord read_record(WireReader& reader) {
    const uint8_t tag = reader.u8();
    switch (static_cast<Tag>(tag)) {
        case Tag::kMember: {
            HealthMember member;
            member.device = reader.string();
            member.address = reader.string();
            member.backend = reader.string();
            member.facts = reader.string();
            return member;
        }
        case Tag::kTiming:
            return read_timing(reader);
        case Tag::kLink:
            return read_link(reader);
        case Tag::kHost: {
            HostSample host;
            host.node = reader.i64();
            host.pass = reader.i64();
            host.nanoseconds = read_figure(reader);
            return host;
        }
        case Tag::kFault: {
            HealthFault fault;
            fault.rank = reader.i64();
            fault.text = reader.string();
            return fault;
        }
        case Tag::kNote:
            return HealthNote{reader.string()};
        case Tag::kGpuPair: {
            GpuPairSample pair;
            for (int64_t* field : {&pair.first, &pair.second, &pair.bytes_per_second})
                *field = read_figure(reader);
            return pair;
        }
    }
    fail(ExitCode::kInternal, "a health record of the unknown kind {}", tag);
}

}  // namespace

const char* health_op_name(HealthOp op) {
    switch (op) {
        case HealthOp::kBroadcast:
            return "broadcast";
        case HealthOp::kSendReceive:
            return "send_receive";
        case HealthOp::kBarrier:
            return "barrier";
        case HealthOp::kAllReduce:
            return "all_reduce";
        case HealthOp::kAllGather:
            return "all_gather";
        case HealthOp::kReduceScatter:
            return "reduce_scatter";
        case HealthOp::kAllToAll:
            return "all_to_all";
    }
    DSL_CHECK(false, "operation {}", static_cast<int>(op));
}

double bus_factor(HealthOp op, int world_size) {
    const double n = world_size;
    switch (op) {
        case HealthOp::kBroadcast:
        case HealthOp::kSendReceive:
            return 1;
        case HealthOp::kBarrier:
            return 0;
        case HealthOp::kAllReduce:
            return 2 * (n - 1) / n;
        case HealthOp::kAllGather:
        case HealthOp::kReduceScatter:
        case HealthOp::kAllToAll:
            return (n - 1) / n;
    }
    DSL_CHECK(false, "operation {}", static_cast<int>(op));
}

std::string encode(const HealthRecord& record) {
    Encoder encoder;
    std::visit(encoder, record);
    return encoder.writer.bytes();
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
    std::string bytes = writer.bytes();
    for (const HealthRecord& record : records) bytes += encode(record);
    return bytes;
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
