// Multiple-choice questions of `dslaunch eval --choices`: how they are read, and which choice
// counts as the answer of a model. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decoder/score/text_scores.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {

// A question in tokens. Its choices follow the same prompt.
struct ChoiceQuestion {
    std::vector<int32_t> prompt;
    std::vector<std::vector<int32_t>> choices;
    std::vector<size_t> bytes;  // the lengths of the choices' texts
    size_t answer = 0;          // the index of the right choice
};

// The numbers of questions that a model answers right.
struct ChoiceScore {
    int64_t right = 0;          // if the likeliest choice is the answer
    int64_t right_by_byte = 0;  // if the choice with the highest likelihood per byte is the answer
};

// Reads the questions in FILE: lines of JSON, or a list of JSON. At most QUESTIONS_MAX are read; 0
// means all. Throws Error{kInput} for a file without questions, and for a line of another form.
[[nodiscard]] std::vector<ChoiceQuestion> read_choice_questions(const std::string& file,
                                                                int64_t questions_max,
                                                                const TextFiles& files);

// Returns how many QUESTIONS a model answers right, and shows the progress. Throws the errors of
// TextScorer::score.
[[nodiscard]] ChoiceScore score_choices(const std::vector<ChoiceQuestion>& questions,
                                        decoder::TextScorer& scorer);

}  // namespace dslaunch::worker
