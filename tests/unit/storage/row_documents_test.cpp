// The documents of a packed row by their numbers, and numbers that no packed row has.
#include "storage/tables/row_documents.h"

#include "support/catch.h"

namespace dslaunch {

using namespace storage;

TEST_CASE("documents of a row are runs of one number each") {
    struct Case {
        std::vector<int64_t> numbers;
        std::vector<Range> places;
        int64_t bad = -1;
    };
    const std::vector<Case> cases = {
        {{}, {}},
        {{0, 0, 1, 2, 2, 2}, {{0, 2}, {2, 1}, {3, 3}}},
        {{7}, {{0, 1}}},
        {{5, 5, 3, 9}, {{0, 2}, {2, 1}, {3, 1}}},
        {{0, -1}, {{0, 1}}, 1},
        {{0, 1, 1, 0}, {{0, 1}, {1, 2}}, 3},
        {{2, int64_t{1} << 31, 2}, {{0, 1}, {1, 1}}, 2},
    };
    for (const Case& one : cases) {
        const RowDocuments found = documents_of_row(one.numbers);
        CHECK(found.places == one.places);
        CHECK(found.bad == one.bad);
    }
}

}  // namespace dslaunch
