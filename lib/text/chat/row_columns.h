// The columns of a row of training text: the names that are known, and whether a row has other
// columns that would change what is learned. Pure.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_sample.h"
#include "text/chat_template/values/values.h"

namespace dslaunch::text {

// The columns that hold a conversation, in the order in which they are looked for.
inline constexpr std::array<std::string_view, 3> kConversationColumns = {
    "messages", "conversations", "conversation"};
// The columns that hold the question of a row, and the columns that hold its answer.
inline constexpr std::array<std::string_view, 7> kQuestionColumns = {
    "instruction", "prompt", "question", "query", "problem", "input", "inputs"};
inline constexpr std::array<std::string_view, 6> kAnswerColumns = {
    "output", "response", "completion", "answer", "solution", "targets"};

// Returns all columns that change what a row teaches. They are either read, or the row is refused.
[[nodiscard]] std::span<const std::string_view> row_columns();

// The columns of one row, and which of them have been read.
class RowColumns {
  public:
    // REQUIRES: ROW is a dict, and outlives this object.
    explicit RowColumns(const jinja::Value& row) : row_(row) {}

    // Returns the value of column NAME, or nullptr if the row does not have it or it is null.
    // REQUIRES: NAME is one of row_columns().
    [[nodiscard]] const jinja::Value* find(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
    // Returns false also if the column is an empty string, list or object.
    [[nodiscard]] bool has_more_than_nothing(std::string_view name) const;
    // Returns the columns of NAMES that the row has.
    [[nodiscard]] std::vector<std::string_view> present(
        std::span<const std::string_view> names) const;

    // Returns the value of column NAME, and marks the column as read. Throws RowFault if the row
    // does not have it; text() also if it is not a string.
    const jinja::Value& read(std::string_view name);
    const std::string& text(std::string_view name);
    // Marks column NAME as read.
    void count_as_read(std::string_view name) { read_.emplace(name); }

    // Returns the unread columns that do not change what SAMPLE, made from the row, teaches, except
    // for copies of its texts. Throws RowFault naming the first unread column that does, because it
    // would be left out of what is learned.
    [[nodiscard]] std::vector<std::string> unread(const ChatSample& sample) const;

  private:
    const jinja::Value& row_;
    std::set<std::string_view> read_;
};

}  // namespace dslaunch::text
