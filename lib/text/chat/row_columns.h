// The columns of a row of training text: the names that count, and whether a row has others that
// would change what is learned. Pure.
#pragma once

#include "text/chat/chat_sample.h"
#include "text/chat_template/values/value.h"

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// The columns that hold a conversation, in the order in which they are looked for.
inline constexpr std::array<std::string_view, 3> kConversationColumns = {
    "messages", "conversations", "conversation"};
// A question of a row, and its answer.
inline constexpr std::array<std::string_view, 7> kQuestionColumns = {
    "instruction", "prompt", "question", "query", "problem", "input", "inputs"};
inline constexpr std::array<std::string_view, 6> kAnswerColumns = {
    "output", "response", "completion", "answer", "solution", "targets"};

// Returns all columns that change what a row teaches: those that are read or refused.
[[nodiscard]] std::span<const std::string_view> row_columns();

class RowColumns {
  public:
    // REQUIRES: ROW is a dict, and outlives this.
    explicit RowColumns(const jinja::Value& row) : row_(row) {}

    // Returns the value of column NAME; nullptr for a row without it, or with null. REQUIRES: NAME
    // is one of row_columns().
    [[nodiscard]] const jinja::Value* find(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
    // Returns false also for a text, a list or an object that is empty.
    [[nodiscard]] bool has_more_than_nothing(std::string_view name) const;
    // Returns the columns of NAMES that the row has.
    [[nodiscard]] std::vector<std::string_view> present(
        std::span<const std::string_view> names) const;

    // Returns the value of column NAME, which counts as read from now on. Throws RowFault for a row
    // without it; text() also for a value of another kind.
    const jinja::Value& read(std::string_view name);
    const std::string& text(std::string_view name);
    void count_as_read(std::string_view name) { read_.emplace(name); }

    // Returns the unread columns that teach nothing beyond SAMPLE, the row's. Throws RowFault
    // naming the first of the others: it would be left out of what is learned.
    [[nodiscard]] std::vector<std::string> unread(const ChatSample& sample) const;

  private:
    const jinja::Value& row_;
    std::set<std::string_view> read_;
};

}  // namespace dslaunch::text
