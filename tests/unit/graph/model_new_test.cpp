#include "graph/models/models.h"
#include "support/catch.h"
#include <torch/script.h>
using namespace dslaunch;
TEST_CASE("x") {
    auto m = make_gpt(gpt_options("tiny"));
    m.dump(true,false,false);
    auto t = at::randint(0, 512, {2, 17}, at::kLong);
    auto x = t.slice(1, 0, 16), y = t.slice(1, 1, 17);
    auto loss = m.forward({x, y}).toTensor();
    std::cout << loss << "\n";
    m.save("/tmp/g.pt");
}
