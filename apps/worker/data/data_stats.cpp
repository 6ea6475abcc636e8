// dsworker data stats: prints how many rows, tokens and targets a file has.
#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "storage/files/input_file.h"
#include "text/rows/row_packer.h"
#include "worker/data/data_commands.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {
namespace {

// Prints the number of rows, tokens, targets that count, and padding; for pairs also the model
// whose reference they have.
void show_stats(const std::string& file) {
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
    stats.add("FILE", *file, "a file of rows").required();
    return [file] { show_stats(*file); };
}

}  // namespace dslaunch::worker
