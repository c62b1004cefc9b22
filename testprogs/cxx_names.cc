// cxx_names [SECONDS]: main;geometry::Shape::measure;geometry::twice<int>;(anonymous namespace)::hidden;
// geometry::run_lambda…::{lambda…}::operator();geometry::leaf_spin.
#include "testprog.h"

namespace geometry
{

EXACT int leaf_spin(int x)
{
    SPIN();
    return x;
}

EXACT int run_lambda(int x)
{
    auto lambda = [](int y) EXACT { return leaf_spin(y + 1) ^ y; };
    return lambda(x + 1) ^ x;
}

} // namespace geometry

namespace
{

EXACT int hidden(int x)
{
    return geometry::run_lambda(x + 1) ^ x;
}

} // namespace

namespace geometry
{

template <typename T> EXACT T twice(T x)
{
    return static_cast<T>(hidden(static_cast<int>(x) + 1)) ^ x;
}

class Shape
{
  public:
    EXACT int measure(const char *name, int x) const
    {
        return twice<int>(x + side_) ^ x ^ name[0];
    }

  private:
    int side_ = 3;
};

} // namespace geometry

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
    geometry::Shape shape;
    volatile int result = shape.measure("square", argc);
    (void)result;
    return 0;
}
