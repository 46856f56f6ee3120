#include <anyfn/classic.h>
