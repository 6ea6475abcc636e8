// What one forward pass tells of a model: numbers that do not depend on where it is cut.
#include "graph/measure.h"

#include <ATen/Parallel.h>

#include <set>
#include <string>

#include "support/catch.h"
#include "support/fixtures.h"

namespace dslaunch {

namespace {
const std::set<std::string> kPictureModels = {"convnet", "image-text", "mlp", "views-inplace"};
}

TEST_CASE("classes of the loss and work of a model are the same however it is cut") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names()) {
        test::Fixture fixture = test::Fixture::load(name);
        // Pictures are told apart into ten classes, text into its 128 tokens (fixtures/README.md).
        const bool pictures = kPictureModels.count(name) == 1;
        const int64_t classes = pictures ? 10 : 128;
        const SegmentedModel one = fixture.cut(1);
        const auto arguments = fixture.batch(one);
        const int64_t flops = measure(one, arguments).forward_flops();
        CHECK(flops > 0);
        for (const int64_t count : test::segment_counts(one.cut_places())) {
            if (count > 13) break;
            INFO(name << " in " << count << " segments");
            const ModelInfo info = measure(fixture.cut(count), arguments);
            CHECK(info.loss_classes == classes);
            CHECK(info.forward_flops() == flops);
        }
    }
}

}  // namespace dslaunch
