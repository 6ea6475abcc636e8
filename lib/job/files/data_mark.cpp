#include "job/files/data_mark.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::job {

namespace {

// Returns a text that says how samples are made from the file, and in which order they are used.
// The text does not contain the seed.
std::string samples_text(const config::DataConfig& data) {
    std::string text = "rows";
    if (!storage::is_row_file(data.train_path))
        text = fmt::format("{} of {} tokens", dtype_name(data.token_dtype.value_or(DType::kU16)),
                           data.context);
    for (const auto& [argument, column] : data.columns)
        text += fmt::format(", {} from {}", argument, column);
    text += data.shuffle ? ", shuffled" : ", as they lie";
    if (data.eval_fraction > 0) text += fmt::format(", {} of them held out", data.eval_fraction);
    return text;
}

std::string mark_of(const std::string& path) {
    return path.empty() ? "" : storage::hash_text(file_fingerprint(path));
}

}  // namespace

storage::Hash128 file_fingerprint(const std::string& path) {
    constexpr size_t kWholeMax = size_t{64} << 20;
    constexpr size_t kBlockBytes = size_t{64} << 10;
    constexpr size_t kBlocks = 256;
    const storage::MappedFile file(path);
    const std::string_view bytes = text_in(file.bytes());
    std::string looked_at = std::to_string(bytes.size());
    const auto look_at = [&](std::string_view part) {
        looked_at += ' ' + storage::hash_text(storage::hash_of(part));
    };
    if (bytes.size() <= kWholeMax) {
        look_at(bytes);
    } else {
        const size_t last = bytes.size() - kBlockBytes;
        for (size_t block = 0; block < kBlocks; ++block) {
            // last * block would overflow for files larger than 2^56 bytes.
            const size_t begin =
                last / (kBlocks - 1) * block + last % (kBlocks - 1) * block / (kBlocks - 1);
            look_at(bytes.substr(begin, kBlockBytes));
        }
    }
    return storage::hash_of(looked_at);
}

storage::DataMark data_mark(const config::DataConfig& data) {
    return {mark_of(data.train_path), mark_of(data.eval_path), samples_text(data)};
}

std::string data_difference(const storage::DataMark& saved, const storage::DataMark& here) {
    if (saved == storage::DataMark{}) return "";
    std::vector<std::string> differences;
    const auto compare = [&](const char* what, const std::string& was, const std::string& is) {
        if (was != is)
            differences.push_back(
                fmt::format("the fingerprint of {} is {}, but was {}", what, is, printable(was)));
    };
    compare("the training data", saved.train, here.train);
    // A run that starts or stops using a separate held-out file still trains on the same samples.
    if (!saved.held_out.empty() && !here.held_out.empty())
        compare("the held-out data", saved.held_out, here.held_out);
    if (saved.samples != here.samples)
        differences.push_back(fmt::format("samples are {}, but were {}", printable(here.samples),
                                          printable(saved.samples)));
    return join(differences, "; ");
}

}  // namespace dslaunch::job
