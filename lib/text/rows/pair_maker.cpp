#include "text/rows/pair_maker.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::text {

namespace {

// A row with the beginning of one document. `tokens` is the number of the document's tokens in the
// row, and `learned` is the number of targets that training learns.
struct FilledRow {
    TokenRow row;
    int64_t tokens = 0, learned = 0;
};

FilledRow filled_row(const TokenDocument& document, const PairRules& rules) {
    const auto length = static_cast<size_t>(rules.length);
    FilledRow made;
    made.learned =
        append_part(made.row, document, {0, std::min(document.tokens.size(), length), 0});
    made.tokens = std::ssize(made.row.tokens);
    fill_up(made.row, length, {rules.padding, 1});
    return made;
}

}  // namespace

void PairMaker::add(const TokenDocument& chosen, const TokenDocument& rejected) {
    DSL_CHECK(rules_.length > 0 && chosen.tokens.size() >= 2 && rejected.tokens.size() >= 2,
              "the documents of a pair have {} and {} tokens, but need at least 2",
              chosen.tokens.size(), rejected.tokens.size());
    const auto longest =
        static_cast<int64_t>(std::max(chosen.tokens.size(), rejected.tokens.size()));
    const bool is_long = longest > rules_.length;
    ++counts_.added;
    counts_.too_long += is_long ? 1 : 0;
    counts_.longest = std::max(counts_.longest, longest);
    if (is_long && rules_.drops_long) {
        ++counts_.dropped;
        return;
    }
    const FilledRow better = filled_row(chosen, rules_), worse = filled_row(rejected, rules_);
    if (better.learned == 0 || worse.learned == 0) {
        // An answer with no tokens would always be more likely than the other answer.
        ++counts_.unanswered;
        return;
    }
    counts_.cut += is_long ? 1 : 0;
    counts_.equal += better.row.tokens == worse.row.tokens ? 1 : 0;
    counts_.tokens += better.tokens + worse.tokens;
    counts_.learned += better.learned + worse.learned;
    ++counts_.pairs;
    use_(better.row, worse.row);
}

}  // namespace dslaunch::text
