// The number of streams, measured on a link between threads over a store of one process.
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "runtime/comm_gloo/gloo_link.h"
#include "support/catch.h"
#include "support/hang.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("All hosts find the same number of streams and the same rates") {
    for (const int nodes : {2, 3}) {
        const auto store = c10::make_intrusive<c10d::HashStore>();
        std::vector<StreamChoice> choices(static_cast<size_t>(nodes));
        std::vector<std::thread> threads;
        for (int node = 0; node < nodes; ++node)
            threads.emplace_back([&, node] {
                choices[node] = measure_streams(store, {.node = node,
                                                        .node_count = nodes,
                                                        .address = "127.0.0.1",
                                                        .time_limit = test::kHangTime});
            });
        for (std::thread& thread : threads) thread.join();
        CHECK(choices[0].one_bytes_per_s > 0);
        CHECK(choices[0].chosen_bytes_per_s >= choices[0].one_bytes_per_s);
        for (const StreamChoice& choice : choices) {
            CHECK(choice.streams == choices[0].streams);
            CHECK(choice.one_bytes_per_s == choices[0].one_bytes_per_s);
            CHECK(choice.chosen_bytes_per_s == choices[0].chosen_bytes_per_s);
        }
    }
}
