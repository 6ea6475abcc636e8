#include "storage/disk/stripe.h"

#include <set>
#include <utility>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

TEST_CASE("stripes tile all files exactly, for one to five of them") {
    for (int files = 1; files <= 5; ++files) {
        const StripeLayout layout{files, Bytes{8}};
        const int64_t capacity = 8 * files * 3;
        std::set<std::pair<int, int64_t>> places;
        for (int64_t at = 0; at < capacity; ++at) {
            const StripePlace place = stripe_place(layout, at);
            REQUIRE(place.file < files);
            REQUIRE(place.offset_bytes < stripe_file_bytes(layout, Bytes{capacity}).value);
            REQUIRE(places.emplace(place.file, place.offset_bytes).second);
            // A run's bytes do lie one behind the other.
            for (int64_t next = 1; next < std::min(place.run_bytes, capacity - at); ++next) {
                const StripePlace other = stripe_place(layout, at + next);
                REQUIRE(other.file == place.file);
                REQUIRE(other.offset_bytes == place.offset_bytes + next);
            }
        }
    }
}

TEST_CASE("two files take stripes in turn") {
    const StripeLayout layout{2, Bytes{4096}};
    CHECK(stripe_place(layout, 0).file == 0);
    CHECK(stripe_place(layout, 4096).file == 1);
    CHECK(stripe_place(layout, 4096).offset_bytes == 0);
    CHECK(stripe_place(layout, 8192 + 100).file == 0);
    CHECK(stripe_place(layout, 8192 + 100).offset_bytes == 4096 + 100);
    CHECK(stripe_place(layout, 8192 + 100).run_bytes == 4096 - 100);
    CHECK(stripe_file_bytes(layout, Bytes{3 * 4096}) == Bytes{2 * 4096});
    CHECK(stripe_file_bytes({1, Bytes{4096}}, Bytes{3 * 4096}) == Bytes{3 * 4096});
}
