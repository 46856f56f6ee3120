//! Tests that registering and removing a global function many times leaves no objects alive. The test is a
//! separate program, because it counts all live objects of the process.

use anyfn_core as _;

use anyfn::registry;

#[test]
fn setting_and_removing_a_name_leaves_nothing() {
    let one = anyfn::TypedPackedFunc::from_fn(|x: i64| x + 1);
    let round = |i: usize| {
        registry::register("flat.name").set_body_typed(move |x: i64| x + i as i64).unwrap();
        registry::register("flat.name").overriding().set(one.as_packed()).unwrap();
        assert_eq!(registry::get("flat.name").unwrap().call((1,)).unwrap().get::<i64>().unwrap(), 2);
        assert!(registry::remove("flat.name").unwrap());
        assert!(registry::register("flat.name").set(one.as_packed()).is_ok());
        // A refused registration releases everything as well.
        assert!(registry::register("flat.name").set_body(|_| Ok(anyfn::Any::NONE)).is_err());
        assert!(registry::remove("flat.name").unwrap());
    };
    round(0);
    let before = anyfn::live_objects();
    for i in 0..100_000 {
        round(i);
    }
    assert_eq!(anyfn::live_objects(), before);
    assert_eq!(one.as_packed().as_object().use_count(), 1);
}
