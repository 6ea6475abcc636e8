#include "storage/files/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text_bytes.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::storage {
namespace {

using namespace std::string_view_literals;

constexpr size_t kHeaderBytesMax = size_t{100} << 20;  // safetensors allows no more
// Files with fewer bytes are not recognized as text. A file of a few 16-bit tokens may look like
// text by chance. With 16 tokens this does not happen.
constexpr size_t kTextBytesMin = 32;
constexpr size_t kTextBytesMax = 4096;
constexpr size_t kTarMarkAt = 257;  // after the name, mode, owner, size, time and link

// Returns the name of the zip's first record, which precedes its content; empty if the file is cut
// short.
std::string_view first_name(std::string_view zip) {
    constexpr size_t kLengthAt = 26, kNameAt = 30;
    if (zip.size() < kNameAt) return {};
    uint16_t length = 0;
    std::memcpy(&length, zip.data() + kLengthAt, sizeof length);
    return zip.substr(kNameAt, length);
}

FileKind kind_of_zip(std::span<const std::byte> bytes, std::string_view text) {
    if (first_name(text).ends_with(".npy")) return FileKind::kNpz;
    ZipDirectory directory;
    try {
        directory = parse_zip("", bytes);
    } catch (const Error&) {
        return FileKind::kUnreadZip;
    }
    const auto has = [&](std::string_view name) {
        return std::ranges::any_of(directory.records, [&](const ZipRecord& record) {
            return record.name == name || record.name.ends_with(fmt::format("/{}", name));
        });
    };
    if (has("constants.pkl") || has("model.json")) {
        // Both kinds contain models/NAME.json; only an exported program has archive_format.
        return has("archive_format") ? FileKind::kExportedProgram : FileKind::kTorchScript;
    }
    if (has("archive_format") || has("serialized_exported_program.json"))
        return FileKind::kExportedProgram;
    return has("data.pkl") ? FileKind::kPickle : FileKind::kZip;
}

// Returns true for a pickle. Other files may begin with the same two bytes, so this function also
// checks a second mark. In protocols 4 and 5, this is the frame. In older protocols, it is the
// magic number of the old torch.save (several pickles, then raw data), or the STOP at the end.
bool is_pickle(std::string_view text) {
    if (text.size() < 3 || text[0] != '\x80' || text[1] < 2 || text[1] > 5) return false;
    return text[1] >= 4 ? text[2] == '\x95'
                        : text.back() == '.' || text.substr(2).starts_with("\x8a\x0al\xfc\x9c");
}

bool is_safetensors(std::string_view text) {
    uint64_t header = 0;
    if (text.size() < sizeof header + 2) return false;
    std::memcpy(&header, text.data(), sizeof header);
    const std::string_view json = text.substr(sizeof header);
    return header >= 2 && header <= kHeaderBytesMax && header <= json.size() &&
           (json.starts_with("{\"") || json.starts_with("{}") || json.starts_with("{ "));
}

// Returns true for an ONNX model. This is a protocol-buffer message whose first field is the
// version of the format. The next field is the producer's name, the graph or the operators'
// versions.
bool is_onnx(std::string_view text) {
    if (text.size() < 16 || text[0] != '\x08') return false;
    return text[1] >= 1 && text[1] <= 32 &&
           (text[2] == '\x12' || text[2] == '\x3a' || text[2] == '\x42');
}

bool is_text(std::string_view text) {
    if (text.size() < kTextBytesMin) return false;
    const size_t end = std::min(text.size(), kTextBytesMax);
    for (size_t i = 0; i < end;) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
        const size_t length = utf8_length(text, i);
        if (control || byte == 0x7f || length == 0) return false;
        i += length;
    }
    return true;
}

constexpr std::array<std::pair<std::string_view, FileKind>, 10> kBeginnings = {{
    {"\x93NUMPY"sv, FileKind::kNpy},
    {"GGUF"sv, FileKind::kGguf},
    {"\x1f\x8b\x08"sv, FileKind::kCompressed},
    {"\x28\xb5\x2f\xfd"sv, FileKind::kCompressed},
    {"\xfd"
     "7zXZ\0"sv,
     FileKind::kCompressed},
    {"BZh"sv, FileKind::kCompressed},
    {"PAR1"sv, FileKind::kTable},
    {"ARROW1"sv, FileKind::kTable},
    {"\x89HDF\r\n"sv, FileKind::kTable},
    {"7z\xbc\xaf\x27\x1c"sv, FileKind::kCompressed},
}};

}  // namespace

FileKind file_kind(std::span<const std::byte> bytes) {
    const std::string_view text = text_in(bytes);
    if (text.starts_with("PK\x03\x04")) return kind_of_zip(bytes, text);
    if (is_pickle(text)) return FileKind::kPickle;
    if (text.size() > kTarMarkAt && text.substr(kTarMarkAt).starts_with("ustar"))
        return FileKind::kCompressed;
    const auto row = std::ranges::find_if(
        kBeginnings, [&](const auto& beginning) { return text.starts_with(beginning.first); });
    if (row != kBeginnings.end()) return row->second;
    if (!text.empty() && text.front() != '\0' && !download_fault(text).empty())
        return FileKind::kNoDownload;
    if (is_safetensors(text)) return FileKind::kSafetensors;
    if (is_onnx(text)) return FileKind::kOnnx;
    return is_text(text) ? FileKind::kText : FileKind::kOther;
}

const char* file_kind_name(FileKind kind) {
    switch (kind) {
        case FileKind::kTorchScript:
        case FileKind::kExportedProgram:
            return "a model's archive";
        case FileKind::kPickle:
            return "a pickle written by torch.save";
        case FileKind::kSafetensors:
            return "a .safetensors file";
        case FileKind::kOnnx:
            return "an ONNX graph";
        case FileKind::kGguf:
            return "a GGUF file of llama.cpp";
        case FileKind::kNoDownload:
            return "an unfinished download";
        case FileKind::kNpy:
        case FileKind::kNpz:
            return "a NumPy array";
        case FileKind::kZip:
        case FileKind::kUnreadZip:
            return "a zip archive";
        case FileKind::kCompressed:
            return "a compressed file";
        case FileKind::kTable:
            return "a table (Parquet, Arrow or HDF5)";
        case FileKind::kText:
            return "text";
        case FileKind::kOther:
            return "a file of unknown type";
    }
    return "a file of unknown type";
}

}  // namespace dslaunch::storage
