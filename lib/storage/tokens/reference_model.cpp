#include "storage/tokens/reference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/fnv1a.h"
#include "base/text/words.h"
#include "base/text_bytes.h"
#include "storage/files/file_names.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"
#include "storage/tokens/row_vocabulary.h"

namespace dslaunch::storage {

namespace {

constexpr const char* kNameKey = "reference_model";
constexpr const char* kMarkKey = "reference_mark";
constexpr size_t kPieces = 4;  // of each tensor
constexpr size_t kPieceBytes = 16;

// Returns the hash of ENTRY's name, type, shape and evenly spaced pieces.
uint64_t hash_of(const SafetensorsEntry& entry) {
    uint64_t hash =
        fnv1a(kFnv1aBegin, fmt::format("{} {} {}\n", entry.name, dtype_name(entry.dtype),
                                       fmt::join(entry.shape, " ")));
    const std::string_view bytes = text_in(entry.bytes);
    for (size_t piece = 0; piece < kPieces; ++piece)
        hash = fnv1a(hash, bytes.substr(bytes.size() / kPieces * piece, kPieceBytes));
    return hash;
}

// Returns a hash of the tensors in FILES. The hash stays the same if tensors move to another file.
std::string mark_of(const std::vector<std::string>& files) {
    std::vector<uint64_t> hashes;
    for (const std::string& path : files) {
        const SafetensorsFile file(path);
        for (const SafetensorsEntry& entry : file.entries()) hashes.push_back(hash_of(entry));
    }
    std::ranges::sort(hashes);
    uint64_t all = kFnv1aBegin;
    for (const uint64_t hash : hashes) all = fnv1a(all, fmt::format("{:016x}", hash));
    return fmt::format("{:016x}", all);
}

// Returns the mark of MODEL, a hash of its tensors; empty if its weights cannot be read.
std::string mark_of(const ReferenceModel& model) {
    try {
        std::vector<std::string> files = open_model_folder(model.folder).weights;
        if (files.empty()) return "";
        if (!model.adapter.empty())
            files.push_back(fmt::format("{}/{}", model.adapter, kAdapterWeights));
        return mark_of(files);
    } catch (const Error&) {
        return "";
    }
}

}  // namespace

std::string ReferenceModel::text() const {
    return (name.empty() ? folder : name) + (adapter.empty() ? "" : " with adapter " + adapter);
}

void set_reference_model(std::map<std::string, std::string>& metadata,
                         const ReferenceModel& model) {
    metadata[kNameKey] = model.text();
    metadata.erase(kMarkKey);
    if (std::string mark = mark_of(model); !mark.empty()) metadata[kMarkKey] = std::move(mark);
}

std::string reference_model_in(const std::map<std::string, std::string>& metadata) {
    return metadata_value(metadata, kNameKey);
}

std::string other_reference_text(const std::map<std::string, std::string>& metadata,
                                 const ReferenceModel& model, const std::string& path) {
    const std::string expected = metadata_value(metadata, kMarkKey);
    if (expected.empty()) return "";
    const std::string found = mark_of(model);
    if (found.empty() || found == expected) return "";
    return fmt::format(
        "{}: its reference was made with {}, but {} is trained, so the loss compares with "
        "another model. To make the reference with the trained model: dslaunch eval {}{} --data "
        "{} --write-reference",
        printable(path), printable(reference_model_in(metadata)), printable(model.text()),
        shell_word(model.folder),
        model.adapter.empty() ? "" : " --adapter " + shell_word(model.adapter), shell_word(path));
}

}  // namespace dslaunch::storage
