// Reads held-out samples from rows of `dslaunch data prepare` or a file of tokens, and scores them.
// Data path: file -> [here] -> decoder/score. `dslaunch eval` and `compress` use it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/score/text_scores.h"
#include "storage/tokens/token_file.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {

// A text whose tokens attend to each other and to no other tokens.
struct HeldOutText {
    std::vector<int32_t> tokens, targets;
};

// A file of held-out text, as the user names it.
struct HeldOutFile {
    std::string path;
    std::string model;             // the folder of the model that reads it
    std::string dtype = "uint16";  // element type of a file of tokens
    int64_t samples_max = 0;       // only the first ones; 0: all
};

// The samples of one file.
class HeldOut {
  public:
    // SPEAKER: the name under which warnings are logged. CONTEXT: the number of tokens in a sample,
    // used only if the file is a file of tokens. Throws Error{kInput} for a file that is shorter
    // than a sample.
    HeldOut(const HeldOutFile& file, const char* speaker, int64_t context, int64_t vocabulary);

    // Returns the number of samples to evaluate. If the file has pairs, a sample is a pair.
    [[nodiscard]] int64_t samples() const { return samples_; }
    // Returns the rows if they are pairs, otherwise null.
    [[nodiscard]] const TokenRows* pairs() const {
        return rows_ && rows_->has_pairs() ? &*rows_ : nullptr;
    }
    // Returns the number of tokens in a sample.
    [[nodiscard]] int64_t length() const { return rows_ ? rows_->length() : context_; }
    // Returns the texts of SAMPLE that have a scored target.
    [[nodiscard]] std::vector<HeldOutText> read(int64_t sample) const;

  private:
    [[nodiscard]] std::vector<HeldOutText> read_row(int64_t row) const;

    int64_t context_;
    std::optional<TokenRows> rows_;
    std::optional<storage::TokenFile> tokens_;
    int64_t samples_ = 0;
};

// Throws Error{kInput} for a file of another kind; called before the weights are read.
void require_held_out(const HeldOutFile& file, const char* option);

// Scores all samples of DATA and shows the progress under the name SPEAKER. Throws Error{kInput} if
// no target counts.
[[nodiscard]] decoder::TextScore score_held_out(const HeldOut& data, decoder::TextScorer& scorer,
                                                const char* speaker);

}  // namespace dslaunch::worker
