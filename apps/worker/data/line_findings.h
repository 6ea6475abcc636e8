// Counts the lines of training text by their kind, leaves out bad ones, and reports both to the
// user. Data path: line_encoder.h -> [here] -> log lines. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/data/line_encoder.h"
#include "worker/data/sample_lines.h"

namespace dslaunch::worker {

// The findings in all lines of a run of `dslaunch data prepare`.
class LineFindings {
  public:
    // FILES has the names of the files, and must outlive this object. BAD_LINES_MAX is the largest
    // number of bad lines that are left out.
    LineFindings(const std::vector<std::string>& files, int64_t bad_lines_max)
        : files_(files), bad_lines_max_(bad_lines_max) {}

    // Counts a good line.
    void add(const SampleLine& line, const EncodedLine& encoded);
    // Counts a bad line, and warns about it if REASON is new. Throws Error{kInput} if more than
    // BAD_LINES_MAX lines are bad.
    void refuse(const SampleLine& line, const std::string& reason);

    // Returns the number of lines that refuse() has counted.
    [[nodiscard]] int64_t bad_lines() const { return bad_lines_; }
    // Returns true if every good line is a plain text.
    [[nodiscard]] bool are_texts() const {
        return formats_.size() == 1 && formats_.contains("text");
    }

    // Reports how many further lines were left out for a reason that was reported before.
    void tell_repeated() const;
    // Reports all findings. HAS_UNUSED_TEMPLATE: the model has a chat template, but plain texts are
    // not turned into chats (LineRules::makes_chats).
    void tell(bool has_unused_template) const;

  private:
    // The bad lines that share a reason.
    struct Reason {
        std::string first;  // "FILE:LINE"
        int64_t lines = 0;
    };

    [[nodiscard]] std::string place_of(const SampleLine& line) const;
    [[nodiscard]] std::string without_repeated_list(std::string reason);
    void tell_unread(bool has_unused_template) const;

    const std::vector<std::string>& files_;
    int64_t bad_lines_max_;
    std::map<std::string, int64_t> formats_;
    std::map<std::string, int64_t> lost_;  // lost parts, and the number of lines
    std::set<std::string> unread_;         // columns that are not read
    int64_t continued_ = 0;                // lines with a plain text and its continuation
    int64_t empty_answers_ = 0;
    std::string first_empty_;  // "FILE:LINE"
    int64_t bad_lines_ = 0;
    std::map<std::string, Reason> reasons_;  // the reasons that were reported
    bool has_listed_columns_ = false;
};

}  // namespace dslaunch::worker
