#include "launch/metrics/event_bytes.h"

#include <array>
#include <bit>

namespace dslaunch::launch {
namespace {

// The polynomial of CRC-32C with its bits reversed.
constexpr uint32_t kCastagnoli = 0x82f63b78;

constexpr std::array<uint32_t, 256> crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < table.size(); ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
        table[byte] = crc;
    }
    return table;
}

// Returns CRC in the form in which TensorFlow stores it. A plain CRC of bytes that contain a plain
// CRC would detect fewer errors.
uint32_t masked(uint32_t crc) {
    return std::rotr(crc, 15) + 0xa282ead8U;
}

template <typename Number>
void add_little_endian(std::string& bytes, Number number) {
    for (size_t i = 0; i < sizeof number; ++i)
        bytes.push_back(static_cast<char>((number >> (8 * i)) & 0xff));
}

// Protobuf's wire types. The tag of a field contains the type of its value.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_varint(std::string& bytes, uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>(number | 0x80));
    bytes.push_back(static_cast<char>(number));
}

void add_tag(std::string& bytes, int field, Wire wire) {
    add_varint(bytes, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void add_bytes(std::string& bytes, int field, std::string_view content) {
    add_tag(bytes, field, Wire::kBytes);
    add_varint(bytes, content.size());
    bytes += content;
}

// The numbers of the fields in tensorflow/core/util/event.proto and framework/summary.proto.
constexpr int kWallTime = 1;
constexpr int kStep = 2;
constexpr int kFileVersion = 3;
constexpr int kSummary = 5;
constexpr int kSessionLog = 7;
constexpr int kStatus = 1;       // of SessionLog
constexpr uint64_t kStart = 1;   // SessionLog.START
constexpr int kValue = 1;        // of Summary
constexpr int kTag = 1;          // of Summary.Value
constexpr int kSimpleValue = 2;  // of Summary.Value

std::string event_head(double wall_time_s) {
    std::string bytes;
    add_tag(bytes, kWallTime, Wire::kFixed64);
    add_little_endian(bytes, std::bit_cast<uint64_t>(wall_time_s));
    return bytes;
}

std::string event_at(double wall_time_s, int64_t step) {
    std::string bytes = event_head(wall_time_s);
    add_tag(bytes, kStep, Wire::kVarint);
    add_varint(bytes, static_cast<uint64_t>(step));
    return bytes;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
    static constexpr std::array<uint32_t, 256> kTable = crc_table();
    uint32_t crc = ~0U;
    for (const char byte : bytes)
        crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
    return ~crc;
}

std::string tf_record(std::string_view message) {
    std::string record;
    add_little_endian(record, static_cast<uint64_t>(message.size()));
    add_little_endian(record, masked(crc32c(record)));
    record += message;
    add_little_endian(record, masked(crc32c(message)));
    return record;
}

std::string version_event(double wall_time_s) {
    std::string bytes = event_head(wall_time_s);
    add_bytes(bytes, kFileVersion, "brain.Event:2");
    return bytes;
}

std::string session_start_event(double wall_time_s, int64_t step) {
    std::string log;
    add_tag(log, kStatus, Wire::kVarint);
    add_varint(log, kStart);
    std::string bytes = event_at(wall_time_s, step);
    add_bytes(bytes, kSessionLog, log);
    return bytes;
}

std::string scalars_event(double wall_time_s, int64_t step, std::span<const MetricEvent> events) {
    std::string summary;
    for (const MetricEvent& event : events) {
        std::string value;
        add_bytes(value, kTag, event.name);
        add_tag(value, kSimpleValue, Wire::kFixed32);
        add_little_endian(value, std::bit_cast<uint32_t>(static_cast<float>(event.value)));
        add_bytes(summary, kValue, value);
    }
    std::string bytes = event_at(wall_time_s, step);
    add_bytes(bytes, kSummary, summary);
    return bytes;
}

}  // namespace dslaunch::launch
