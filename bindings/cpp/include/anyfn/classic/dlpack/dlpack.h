#include <anyfn/c_api.h>
