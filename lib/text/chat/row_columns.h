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
// The columns that hold a row's question, and the columns that hold its answer.
inline constexpr std::array<std::string_view, 7> kQuestionColumns = {
    "instruction", "prompt", "question", "query", "problem", "input", "inputs"};
inline constexpr std::array<std::string_view, 6> kAnswerColumns = {
    "output", "response", "completion", "answer", "solution", "targets"};

// Returns all columns that change what a row teaches. If a row has such a column, either the column
// is read or the row is refused.
[[nodiscard]] std::span<const std::string_view> row_columns();

// The columns of one row, and which of them have been read.
class RowColumns {
  public:
    // REQUIRES: ROW is a dict, and outlives this object.
    explicit RowColumns(const jinja::Value& row) : row_(row) {}

    // Returns the value of column NAME, or nullptr if the column is missing or its value is null.
    // REQUIRES: NAME is one of row_columns().
    [[nodiscard]] const jinja::Value* find(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
    // Returns true if the row has column NAME and its value is neither null nor an empty string,
    // list or object.
    [[nodiscard]] bool has_more_than_nothing(std::string_view name) const;
    // Returns the columns of NAMES that the row has.
    [[nodiscard]] std::vector<std::string_view> present(
        std::span<const std::string_view> names) const;

    // Return the value of column NAME, and mark the column as read. Throw RowFault if the row does
    // not have the column. text() also throws RowFault if the value is not a string.
    const jinja::Value& read(std::string_view name);
    const std::string& text(std::string_view name);
    // Marks column NAME as read.
    void count_as_read(std::string_view name) { read_.emplace(name); }

    // Returns the unread columns. Leaves out columns that are empty or only repeat SAMPLE's texts.
    // REQUIRES: SAMPLE was made from this row. Throws RowFault if an unread column would change
    // what the row teaches; the message names the first such column.
    [[nodiscard]] std::vector<std::string> unread(const ChatSample& sample) const;

  private:
    const jinja::Value& row_;
    std::set<std::string_view> read_;
};

}  // namespace dslaunch::text
