// Reads TensorBoard's event files for tests. It shares no code with the program that writes them:
// it computes the checksum bit by bit, and finds the fields of protobuf messages by their wire
// types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::test {

// One message of an event file.
struct ReadEvent {
    double wall_time = 0;
    int64_t step = 0;
    std::string version;                                // from file_version
    std::optional<int64_t> session;                     // status in session_log; START is 1
    std::vector<std::pair<std::string, float>> values;  // from summary
};

inline uint32_t crc32c_by_bits(std::string_view bytes) {
    uint32_t crc = 0xffffffff;
    for (const char byte : bytes) {
        crc ^= static_cast<unsigned char>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc % 2 == 1 ? 0x82f63b78 : 0);
    }
    return crc ^ 0xffffffff;
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
    Number number{};
    if (offset + sizeof number > bytes.size()) throw std::runtime_error("bytes end too early");
    std::memcpy(&number, bytes.data() + offset, sizeof number);
    return number;
}

// A field of a protobuf message. Varints, fixed 32 and fixed 64 have a number, other types bytes.
struct ProtoField {
    uint64_t number = 0;
    uint64_t value = 0;
    std::string_view bytes;
};

inline std::vector<ProtoField> proto_fields(std::string_view message) {
    std::vector<ProtoField> fields;
    size_t at = 0;
    const auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            if (at >= message.size() || shift > 63) throw std::runtime_error("bad varint");
            const auto byte = static_cast<unsigned char>(message[at++]);
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
    };
    while (at < message.size()) {
        const uint64_t tag = varint();
        ProtoField field{tag >> 3, 0, {}};
        if ((tag & 7) == 0) {
            field.value = varint();
        } else if ((tag & 7) == 1) {
            field.value = number_at<uint64_t>(message, at);
            at += 8;
        } else if ((tag & 7) == 5) {
            field.value = number_at<uint32_t>(message, at);
            at += 4;
        } else if ((tag & 7) == 2) {
            const uint64_t length = varint();
            if (length > message.size() - at) throw std::runtime_error("bytes end too early");
            field.bytes = message.substr(at, length);
            at += length;
        } else {
            throw std::runtime_error("unknown wire type");
        }
        fields.push_back(field);
    }
    return fields;
}

inline std::pair<std::string, float> scalar_of(std::string_view message) {
    std::pair<std::string, float> scalar;
    for (const ProtoField& field : proto_fields(message)) {
        if (field.number == 1) scalar.first = field.bytes;
        if (field.number == 2) {
            const auto bits = static_cast<uint32_t>(field.value);
            std::memcpy(&scalar.second, &bits, sizeof bits);
        }
    }
    return scalar;
}

inline ReadEvent event_of(std::string_view message) {
    ReadEvent event;
    for (const ProtoField& field : proto_fields(message)) {
        if (field.number == 1) std::memcpy(&event.wall_time, &field.value, sizeof field.value);
        if (field.number == 2) event.step = static_cast<int64_t>(field.value);
        if (field.number == 3) event.version = field.bytes;
        if (field.number == 5)
            for (const ProtoField& value : proto_fields(field.bytes))
                event.values.push_back(scalar_of(value.bytes));
        if (field.number == 7)
            event.session = static_cast<int64_t>(proto_fields(field.bytes).at(0).value);
    }
    return event;
}

// Returns the messages in BYTES, whose checksums must be right. An incomplete record at the end is
// left out, as in TensorBoard.
inline std::vector<ReadEvent> events_in(std::string_view bytes) {
    const auto checked = [](std::string_view part, uint32_t stored) {
        const uint32_t crc = crc32c_by_bits(part);
        if (stored != ((crc >> 15 | crc << 17) + 0xa282ead8U))
            throw std::runtime_error("wrong checksum");
    };
    std::vector<ReadEvent> events;
    size_t at = 0;
    while (bytes.size() - at >= 12) {
        const auto length = number_at<uint64_t>(bytes, at);
        checked(bytes.substr(at, 8), number_at<uint32_t>(bytes, at + 8));
        if (bytes.size() - at < 16 + length) break;
        checked(bytes.substr(at + 12, length), number_at<uint32_t>(bytes, at + 12 + length));
        events.push_back(event_of(bytes.substr(at + 12, length)));
        at += 16 + length;
    }
    return events;
}

// For each tag, pairs of step and value.
using Curves = std::map<std::string, std::vector<std::pair<int64_t, float>>>;

// Returns the curves that TensorBoard shows for the event files in FOLDER. TensorBoard reads the
// files in the order of their names. If a message starts a session, it discards all values from the
// message's step on.
inline Curves curves_in(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().find("tfevents") != std::string::npos)
            files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    Curves curves;
    for (const std::string& path : files) {
        std::ifstream file(path, std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        for (const ReadEvent& event : events_in(bytes)) {
            if (event.session == 1)
                for (auto& [tag, points] : curves)
                    std::erase_if(points, [&](const auto& p) { return p.first >= event.step; });
            for (const auto& [tag, value] : event.values)
                curves[tag].emplace_back(event.step, value);
        }
    }
    return curves;
}

}  // namespace dslaunch::test
