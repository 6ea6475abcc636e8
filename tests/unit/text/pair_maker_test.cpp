// Pairs of answers as two rows: the tokens that are learned, and the treatment of pairs that do not
// fit.
#include "text/rows/pair_maker.h"

#include <utility>

#include "support/catch.h"

namespace dslaunch::text {
namespace {

using Numbers = std::vector<int32_t>;

// Returns the tokens FIRST, FIRST + 1, …, with an answer from LEARNED_FROM on.
TokenDocument answer(int32_t first, size_t length, size_t learned_from) {
    TokenDocument document;
    for (size_t i = 0; i < length; ++i) {
        document.tokens.push_back(first + static_cast<int32_t>(i));
        document.is_learned.push_back(i >= learned_from);
    }
    return document;
}

struct Made {
    std::vector<std::pair<TokenRow, TokenRow>> pairs;
    PairCounts counts;
};

Made made_of(const PairRules& rules,
             const std::vector<std::pair<TokenDocument, TokenDocument>>& pairs) {
    Made made;
    PairMaker maker(rules, [&](const TokenRow& chosen, const TokenRow& rejected) {
        made.pairs.emplace_back(chosen, rejected);
    });
    for (const auto& [chosen, rejected] : pairs) maker.add(chosen, rejected);
    made.counts = maker.counts();
    CHECK(made.counts.pairs == std::ssize(made.pairs));
    return made;
}

}  // namespace

TEST_CASE("a pair is two rows, in which the answers alone are learned") {
    const Made made = made_of({.length = 5, .padding = 9}, {{answer(10, 4, 2), answer(20, 3, 2)}});
    REQUIRE(made.pairs.size() == 1);
    const auto& [chosen, rejected] = made.pairs.front();
    CHECK(chosen.tokens == Numbers{10, 11, 12, 13, 9});
    CHECK(chosen.targets == Numbers{-100, 12, 13, -100, -100});
    CHECK(rejected.tokens == Numbers{20, 21, 22, 9, 9});
    CHECK(rejected.targets == Numbers{-100, 22, -100, -100, -100});
    CHECK(made.counts.tokens == 7);
    CHECK(made.counts.learned == 3);
    CHECK(made.counts.equal == 0);
}

TEST_CASE("a text longer than a row loses its end, and a pair without an answer is left out") {
    const std::vector<std::pair<TokenDocument, TokenDocument>> pairs = {
        {answer(10, 9, 2), answer(20, 3, 2)},  // the end of an answer is left out
        {answer(10, 5, 4), answer(20, 9, 5)},  // a whole answer is left out
        {answer(10, 9, 8), answer(20, 9, 8)},  // the prompt alone is too long
        {answer(10, 5, 4), answer(10, 5, 4)},  // fits, but both answers are equal
    };
    const Made cut = made_of({.length = 5}, pairs);
    REQUIRE(cut.pairs.size() == 2);
    CHECK(cut.pairs[0].first.tokens == Numbers{10, 11, 12, 13, 14});
    CHECK(cut.pairs[0].first.targets == Numbers{-100, 12, 13, 14, -100});
    CHECK(cut.counts.cut == 1);
    CHECK(cut.counts.unanswered == 2);
    CHECK(cut.counts.equal == 1);
    const Made dropped = made_of({.length = 5, .drops_long = true}, pairs);
    CHECK(dropped.counts.dropped == 3);
    CHECK(dropped.counts.cut == 0);
    CHECK(dropped.pairs.size() == 1);
    // With one more token, the second pair has an answer in each row.
    CHECK(made_of({.length = 6}, pairs).counts.unanswered == 1);
}

}  // namespace dslaunch::text
