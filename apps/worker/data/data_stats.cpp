// dsworker data stats: prints how many rows, tokens and targets a file has.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"
#include "storage/tokens/token_file.h"
#include "text/rows/row_packer.h"
#include "worker/data/data_commands.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {
namespace {

// Returns true if PATH is probably a file of raw tokens.
bool has_raw_tokens(const std::string& path) {
    if (storage::is_row_file(path)) return false;
    try {
        const storage::MappedFile file(path);
        return storage::file_kind(file.bytes()) == storage::FileKind::kOther;
    } catch (const Error&) {
        return false;  // the reader of rows reports the fault
    }
}

// Opens the raw tokens at PATH in the narrowest type that they may have, and sets TYPE to its name.
storage::TokenFile open_tokens(const std::string& path, const char*& type) {
    for (const auto& [name, dtype] :
         {std::pair{"uint16", DType::kU16}, std::pair{"uint32", DType::kU32}}) {
        try {
            type = name;
            return {path, dtype};
        } catch (const Error&) {  // the file is not whole in this type: the next one is wider
        }
    }
    type = "int64";
    return {path, DType::kI64};
}

// Prints the number of tokens at PATH, the largest token, and the type of the tokens.
void show_raw_stats(const std::string& path) {
    constexpr int64_t kBlockTokens = int64_t{1} << 16;
    const char* type = nullptr;
    const storage::TokenFile file = open_tokens(path, type);
    std::vector<int64_t> tokens;
    int64_t largest = 0;
    for (int64_t first = 0; first < file.token_count(); first += kBlockTokens) {
        tokens.resize(static_cast<size_t>(std::min(kBlockTokens, file.token_count() - first)));
        file.read(first, tokens);
        largest = std::max(largest, std::ranges::max(tokens));
    }
    fmt::print("tokens   {}\nlargest  {}\ntype     {}\n", file.token_count(), largest, type);
    log_info("data",
             "{}: contains raw tokens, not rows; a training cuts them into samples of N tokens "
             "(--context N)",
             printable(path));
}

// Prints the numbers of rows, tokens, scored targets and padding tokens. For pairs, also prints the
// name of the reference model.
void show_stats(const std::string& file) {
    if (has_raw_tokens(file)) return show_raw_stats(file);
    storage::require_rows(file);
    const TokenRows rows(file);
    int64_t learned = 0, padding = 0;
    for (int64_t row = 0; row < rows.count(); ++row) {
        const std::vector<int32_t> targets = rows.targets(row);
        padding += static_cast<int64_t>(padding_of(rows.tokens(row), targets));
        for (const int32_t target : targets) learned += target != text::kNotLearned ? 1 : 0;
    }
    const int64_t places = rows.count() * rows.length();
    if (rows.has_pairs()) {
        const bool has_reference = !rows.reference().empty();
        fmt::print("pairs    {}\nreference  {}\n", rows.count() / 2,
                   !has_reference                   ? "none"
                   : rows.reference_model().empty() ? "of an unnamed model"
                                                    : "of " + printable(rows.reference_model()));
    }
    fmt::print("rows     {}\nlength   {}\ntokens   {}\nlearned  {}\npadding  {} ({:.1f} %)\n",
               rows.count(), rows.length(), places - padding, learned, padding,
               100.0 * static_cast<double>(padding) / static_cast<double>(places));
}

}  // namespace

std::function<void()> add_data_stats(CommandLine& app) {
    const auto file = std::make_shared<std::string>();
    CommandLine& stats =
        app.subcommand("stats", {.does = "Prints how many rows, tokens and targets a file has.",
                                 .examples = {"dslaunch data stats rows.safetensors"},
                                 .docs = kDataDocs});
    stats.add("FILE", *file, "a file of rows, or of raw tokens").required();
    return [file] { show_stats(*file); };
}

}  // namespace dslaunch::worker
