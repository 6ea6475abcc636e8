#include "storage/files/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "storage/files/mapped_file.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kHeaderBytesMax = size_t{100} << 20;  // safetensors allows no more

ModelFileKind kind_of_zip(std::span<const std::byte> bytes) {
    ZipDirectory directory;
    try {
        directory = parse_zip("", bytes);
    } catch (const Error&) {
        return ModelFileKind::kOther;
    }
    const auto has = [&](std::string_view name) {
        return std::ranges::any_of(directory.records, [&](const ZipRecord& record) {
            return record.name == name || record.name.ends_with(fmt::format("/{}", name));
        });
    };
    if (has("constants.pkl") || has("model.json")) {
        // An exported program has a models/NAME.json and its own list of formats beside it.
        return has("archive_format") ? ModelFileKind::kExportedProgram
                                     : ModelFileKind::kTorchScript;
    }
    if (has("archive_format") || has("serialized_exported_program.json"))
        return ModelFileKind::kExportedProgram;
    return has("data.pkl") ? ModelFileKind::kPickle : ModelFileKind::kOther;
}

bool is_safetensors(std::span<const std::byte> bytes) {
    uint64_t header = 0;
    if (bytes.size() < sizeof header + 2) return false;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header >= 2 && header <= kHeaderBytesMax && header <= bytes.size() - sizeof header &&
           bytes[sizeof header] == std::byte{'{'};
}

// A message of protocol buffers that begins with field 1, the version of ONNX's format, and goes on
// with the producer's name, the graph or the operators' versions.
bool is_onnx(std::span<const std::byte> bytes) {
    if (bytes.size() < 16 || bytes[0] != std::byte{0x08}) return false;
    const auto version = std::to_integer<int>(bytes[1]);
    const auto next = std::to_integer<int>(bytes[2]);
    return version >= 1 && version <= 32 && (next == 0x12 || next == 0x3a || next == 0x42);
}

constexpr const char* kMakeOne =
    "in Python, with the module that has these weights: torch.jit.save(torch.jit.script(module), "
    "\"train.pt\"), or torch.jit.trace(module, example_inputs) where it cannot be scripted";

std::optional<std::string> objection(ModelFileKind kind) {
    switch (kind) {
        case ModelFileKind::kTorchScript:
        case ModelFileKind::kOther:
            return std::nullopt;
        case ModelFileKind::kExportedProgram:
            return std::string(
                "is an exported program (torch.export.save), which this version does not read; "
                "write TorchScript in Python: torch.jit.save(torch.jit.trace(module, "
                "example_inputs), \"train.pt\")");
        case ModelFileKind::kPickle:
            return std::string(
                       "is a pickle of torch.save: weights, or a module by the name of its class, "
                       "without the graph that is trained; ") +
                   kMakeOne;
        case ModelFileKind::kSafetensors:
            return std::string("holds weights (safetensors) without the graph that is trained; ") +
                   kMakeOne;
        case ModelFileKind::kOnnx:
            return std::string(
                "is an ONNX graph, which is for inference; write the module that it was exported "
                "from: torch.jit.save(torch.jit.script(module), \"train.pt\")");
        case ModelFileKind::kLfsPointer:
            return std::string(
                "is a pointer of Git LFS, not the file itself; fetch it: git lfs pull");
        case ModelFileKind::kWebPage:
            return std::string(
                "is a web page, not a model: the download failed; look at it and fetch it again");
    }
    return std::nullopt;
}

}  // namespace

ModelFileKind model_file_kind(std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.starts_with("PK\x03\x04")) return kind_of_zip(bytes);
    // Protocols 2 to 5 begin so; the old format of torch.save is several such pickles.
    if (text.size() > 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5)
        return ModelFileKind::kPickle;
    if (text.starts_with("version https://git-lfs")) return ModelFileKind::kLfsPointer;
    const std::string beginning = lower(trim(text.substr(0, 64)));
    if (beginning.starts_with("<!doctype html") || beginning.starts_with("<html"))
        return ModelFileKind::kWebPage;
    if (is_safetensors(bytes)) return ModelFileKind::kSafetensors;
    return is_onnx(bytes) ? ModelFileKind::kOnnx : ModelFileKind::kOther;
}

bool has_model_name(std::string_view path) {
    constexpr std::array<std::string_view, 9> kEndings = {
        ".pth", ".pt2", ".bin", ".ckpt", ".safetensors", ".onnx", ".torchscript", ".jit", ".ptl"};
    return std::ranges::any_of(kEndings,
                               [&](std::string_view ending) { return path.ends_with(ending); });
}

void require_torchscript(const std::string& path) {
    std::optional<std::string> why;
    try {
        why = objection(model_file_kind(MappedFile(path).bytes()));
    } catch (const Error&) {
        return;
    }
    if (why) fail(ExitCode::kInput, "{}: {}", printable(path), *why);
}

}  // namespace dslaunch::storage
