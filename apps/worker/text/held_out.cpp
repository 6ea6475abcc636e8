#include "worker/text/held_out.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "storage/files/input_file.h"
#include "storage/files/npy_file.h"
#include "storage/huggingface/named_place.h"
#include "storage/tokens/token_counts.h"

namespace dslaunch::worker {
namespace {

DType token_dtype(const std::string& name) {
    if (name == "uint16") return DType::kU16;
    if (name == "uint32") return DType::kU32;
    return name == "int32" ? DType::kI32 : DType::kI64;
}

}  // namespace

HeldOut::HeldOut(const HeldOutFile& file, const char* speaker, int64_t context, int64_t vocabulary)
    : context_(context) {
    if (file.path.ends_with(".safetensors")) {
        rows_.emplace(file.path);
        if (const std::string other = rows_->other_vocabulary(file.model); !other.empty())
            log_warn(speaker, "{}: {}", file.path, other);
        samples_ = rows_->count() / (rows_->has_pairs() ? 2 : 1);
    } else {
        tokens_.emplace(file.path, token_dtype(file.dtype));
        samples_ = (tokens_->token_count() - 1) / context;
        if (samples_ == 0)
            fail(ExitCode::kInput,
                 "{}: has {} tokens, but a sample needs {}: set a smaller --context",
                 printable(file.path), tokens_->token_count(), context + 1);
        if (const std::string foreign = storage::foreign_text(*tokens_, vocabulary);
            !foreign.empty())
            log_warn(speaker, "{}: {}", file.path, foreign);
    }
    if (file.samples_max > 0) samples_ = std::min(samples_, file.samples_max);
}

std::vector<HeldOutText> HeldOut::read(int64_t sample) const {
    if (rows_) return read_row(sample);
    std::vector<int64_t> numbers(static_cast<size_t>(context_ + 1));
    tokens_->read(sample * context_, numbers);
    for (const int64_t number : numbers)
        if (number < 0 || number > std::numeric_limits<int32_t>::max())
            fail(ExitCode::kInput, "{}: sample {} contains {}, which is not a token id",
                 printable(tokens_->path()), sample, number);
    return {{{numbers.begin(), numbers.end() - 1}, {numbers.begin() + 1, numbers.end()}}};
}

std::vector<HeldOutText> HeldOut::read_row(int64_t row) const {
    const std::vector<int32_t> tokens = rows_->tokens(row), targets = rows_->targets(row);
    std::vector<HeldOutText> texts;
    for (const Range& document : rows_->documents(row)) {
        int64_t end = document.end();
        // Tokens after the last target cannot influence its score, so they are left out.
        while (end > document.begin && targets[end - 1] == decoder::kNoTarget) --end;
        if (end == document.begin) continue;
        const auto part = [&](const std::vector<int32_t>& of) {
            return std::vector(of.begin() + document.begin, of.begin() + end);
        };
        texts.push_back({part(tokens), part(targets)});
    }
    return texts;
}

void require_held_out(const HeldOutFile& file, const char* option) {
    if (const std::string hub = storage::hub_data_text(file.path); !hub.empty())
        fail(ExitCode::kInput, "{} {}: no such file{}", option, printable(file.path), hub);
    storage::require_data(file.path, file.model);
    if (!file.path.ends_with(".npy")) return;
    const std::string recipe =
        storage::token_recipe(file.path, storage::NpyFile(file.path).array(), "--dtype ");
    fail(ExitCode::kInput, "{} {}: is a single array, but texts need tokens and targets; {}",
         option, printable(file.path),
         recipe.empty() ? "use rows in .safetensors from `dslaunch data prepare`" : recipe);
}

decoder::TextScore score_held_out(const HeldOut& data, decoder::TextScorer& scorer,
                                  const char* speaker) {
    Progress progress(speaker, "evaluating", data.samples(), "samples");
    decoder::TextScore sum;
    for (int64_t sample = 0; sample < data.samples(); ++sample) {
        // Also passes the length of the whole row, because some models choose their rotary factors
        // by this length. Training does the same.
        for (const HeldOutText& text : data.read(sample))
            sum += scorer.score(text.tokens, text.targets, {.length = data.length()});
        progress.done(sample + 1);
    }
    if (sum.targets == 0)
        fail(ExitCode::kInput, "the held-out text contains no targets to evaluate");
    return sum;
}

}  // namespace dslaunch::worker
