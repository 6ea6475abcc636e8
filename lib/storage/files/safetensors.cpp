#include "storage/files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/kinds/half_arrays.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/json.h"
#include "base/text/json_place.h"
#include "base/text_bytes.h"
#include "storage/files/file_kind.h"

namespace dslaunch::storage {
namespace {

using Json = JsonPlace::Json;
constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

int64_t natural(const std::string& path, const std::string& name, const Json& value) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
        fail(ExitCode::kInput, "{}: tensor '{}': '{}' is not a size", path, name, value.dump());
    return value.get<int64_t>();
}

int64_t checked_bytes(const std::string& path, const SafetensorsEntry& entry) {
    int64_t bytes = dtype_bytes(entry.dtype);
    for (const int64_t extent : entry.shape)
        if (__builtin_mul_overflow(bytes, extent, &bytes))
            fail(ExitCode::kInput,
                 "{}: tensor '{}': its shape is too large: the number of bytes overflows", path,
                 entry.name);
    return bytes;
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const Json& json,
                             std::span<const std::byte> data) {
    if (!json.is_object() || json.size() != 3 || !json.contains("dtype") ||
        !json.contains("shape") || !json.contains("data_offsets") || !json["dtype"].is_string() ||
        !json["shape"].is_array() || !json["data_offsets"].is_array() ||
        json["data_offsets"].size() != 2)
        fail(ExitCode::kInput,
             "{}: tensor '{}' must have exactly dtype, shape and two data_offsets", path, name);
    const auto dtype = dtype_from_name(json["dtype"].get_ref<const std::string&>());
    if (!dtype)
        fail(ExitCode::kInput, "{}: tensor '{}': unknown dtype {}", path, name,
             json["dtype"].dump());
    SafetensorsEntry entry{name, *dtype, {}, {}};
    for (const Json& extent : json["shape"]) entry.shape.push_back(natural(path, name, extent));
    const int64_t begin = natural(path, name, json["data_offsets"][0]);
    const int64_t end = natural(path, name, json["data_offsets"][1]);
    if (begin > end || static_cast<uint64_t>(end) > data.size())
        fail(ExitCode::kInput,
             "{}: tensor '{}': data_offsets [{}, {}] are not within the file's {} bytes of data{}",
             path, name, begin, end, data.size(),
             begin <= end ? ": the file is truncated; download or copy it again" : "");
    if (end - begin != checked_bytes(path, entry))
        fail(ExitCode::kInput, "{}: tensor '{}': its {} bytes do not match its shape and dtype",
             path, name, end - begin);
    entry.bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return entry;
}

void check_cover(const std::string& path, std::vector<SafetensorsEntry>& entries,
                 std::span<const std::byte> data) {
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.bytes.data(), a.bytes.size()) <
               std::pair(b.bytes.data(), b.bytes.size());
    });
    const std::byte* next = data.data();
    for (const SafetensorsEntry& entry : entries) {
        if (entry.bytes.data() != next)
            fail(ExitCode::kInput,
                 "{}: tensor '{}' leaves a gap after the tensor before it, or overlaps it", path,
                 entry.name);
        next += entry.bytes.size();
    }
    if (next != data.data() + data.size())
        fail(ExitCode::kInput, "{}: the bytes at its end belong to no tensor", path);
}

// Throws Error{kInput} for a file without a valid header. The message says what the file is
// instead, if that is known, else PROBLEM.
[[noreturn]] void fail_as_other(const std::string& path, std::span<const std::byte> all,
                                const std::string& problem) {
    if (const std::string fault = download_fault(text_in(all)); !fault.empty())
        fail(ExitCode::kInput, "{}: {}", path, fault);
    fail(ExitCode::kInput, "{}: is {}, not a .safetensors file: {}", path,
         file_kind_name(file_kind(all)), problem);
}

// Refuses TEXT, a text of the header, if it is not UTF-8: a reader of the JSON would get a
// different text. WHAT names TEXT in the message.
void require_utf8(const char* what, const std::string& text) {
    for (size_t i = 0; i < text.size();) {
        const size_t length = utf8_length(text, i);
        if (length == 0)
            fail(ExitCode::kInput, "{} `{}` is not UTF-8, which a safetensors file requires", what,
                 printable(text));
        i += length;
    }
}

}  // namespace

SafetensorsContent parse_safetensors(const std::string& path, std::span<const std::byte> all) {
    uint64_t length = 0;
    if (all.size() < sizeof(length))
        fail_as_other(path, all, fmt::format("its {} bytes are too few for a header", all.size()));
    std::memcpy(&length, all.data(), sizeof(length));
    if (length > std::min<uint64_t>(kSafetensorsHeaderBytesMax, all.size() - sizeof(length)))
        fail_as_other(path, all,
                      fmt::format("its header of {} bytes does not fit in the file of {} bytes, "
                                  "which may be truncated",
                                  length, all.size()));
    const std::string_view text(reinterpret_cast<const char*>(all.data()) + sizeof(length), length);
    if (text.empty() || text.front() != '{')
        fail_as_other(path, all, "the header does not begin with '{'");
    const Json header = JsonPlace::parse(path + ": the header", text);
    const auto data = all.subspan(sizeof(length) + length);
    SafetensorsContent out;
    for (const auto& [name, json] : header.items()) {
        if (name != "__metadata__") {
            out.entries.push_back(parse_entry(path, name, json, data));
            continue;
        }
        if (!json.is_object()) fail(ExitCode::kInput, "{}: __metadata__ is not an object", path);
        for (const auto& [key, value] : json.items()) {
            if (!value.is_string())
                fail(ExitCode::kInput, "{}: __metadata__ '{}' is not a string", path, key);
            out.metadata[key] = value.get<std::string>();
        }
    }
    check_cover(path, out.entries, data);
    return out;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), content_(parse_safetensors(path, file_.bytes())) {}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
    const auto found = std::find_if(entries().begin(), entries().end(),
                                    [&](const auto& entry) { return entry.name == name; });
    return found == entries().end() ? nullptr : &*found;
}

float number_at(const SafetensorsEntry& entry, int64_t index) {
    float number = 0;
    to_fp32(entry.bytes.data() + index * dtype_bytes(entry.dtype), entry.dtype, 1, &number);
    return number;
}

SafetensorsWriter::Layout SafetensorsWriter::layout_of(
    std::span<const SafetensorsEntry> entries, const std::map<std::string, std::string>& metadata) {
    std::map<std::string_view, std::string> members;  // the header's values, sorted by key
    if (!metadata.empty()) {
        JsonWriter json(JsonWriter::Form::kCompact);
        json.begin_object();
        for (const auto& [key, value] : metadata) {
            require_utf8("the metadata key", key);
            require_utf8("the metadata value", value);
            json.field(key, value);
        }
        members["__metadata__"] = json.end_object().text();
    }
    Layout layout;
    int64_t end = 0;
    for (const SafetensorsEntry& entry : entries) {
        require_utf8("the tensor's name", entry.name);
        layout.places.push_back({end, checked_bytes("write", entry)});
        const int64_t begin = std::exchange(end, end + layout.places.back().bytes);
        JsonWriter json(JsonWriter::Form::kCompact);
        json.begin_object().key("data_offsets").begin_array().value(begin).value(end).end_array();
        json.field("dtype", dtype_name(entry.dtype)).key("shape").begin_array();
        for (const int64_t extent : entry.shape) json.value(extent);
        const bool is_new =
            members.emplace(entry.name, json.end_array().end_object().text()).second;
        DSL_CHECK(is_new, "tensor '{}' appears twice", entry.name);
    }
    JsonWriter json(JsonWriter::Form::kCompact);
    json.begin_object();
    for (const auto& [key, value] : members) json.key(key).raw(value);
    std::string text = json.end_object().text();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    layout.header = std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
    const auto data_begin = static_cast<int64_t>(layout.header.size());
    for (Place& place : layout.places) place.begin += data_begin;
    layout.file_bytes = data_begin + end;
    return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::span<const SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : layout_(layout_of(entries, metadata)), file_(path, Bytes{layout_.file_bytes}) {
    file_.write(layout_.header);
}

void SafetensorsWriter::write(size_t index, std::span<const std::byte> bytes) {
    Place& place = layout_.places.at(index);
    DSL_CHECK(std::ssize(bytes) == place.bytes && place.bytes_written == 0,
              "tensor {}: one call wrote {} bytes, but the tensor has {} bytes", index,
              bytes.size(), place.bytes);
    append(index, bytes);
}

void SafetensorsWriter::append(size_t index, std::span<const std::byte> bytes) {
    Place& place = layout_.places.at(index);
    DSL_CHECK(std::ssize(bytes) <= place.bytes - place.bytes_written,
              "tensor {}: {} bytes do not fit after the first {} of its {} bytes", index,
              bytes.size(), place.bytes_written, place.bytes);
    file_.write_at(place.begin + place.bytes_written, bytes);
    place.bytes_written += std::ssize(bytes);
}

void SafetensorsWriter::commit() {
    for (size_t i = 0; i < layout_.places.size(); ++i)
        DSL_CHECK(layout_.places[i].bytes_written == layout_.places[i].bytes,
                  "tensor {} was not written completely", i);
    file_.commit();
}

}  // namespace dslaunch::storage
