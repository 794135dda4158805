package shop

// seeded returns the shop as it stands before the first effect. It is built
// afresh on each call, so nothing that happens can reach the seed.
func seeded() state {
	st := state{done: map[Verb]int{}}
	for _, row := range []struct {
		n        string // ord_10NN, adr_20NN
		payment  string
		customer string
		status   string
		amount   int64
		place    Place
	}{
		{"01", "pay_a1", "Birch Bakery", orderOpen, 24900, Place{"Quay Street 4", "Hamburg", "20095", "DE"}},
		{"02", "pay_a2", "Customer 17", orderOpen, 8950, Place{"Mill Lane 12", "Utrecht", "3511", "NL"}},
		{"03", "pay_a3", "Harbour Cycles", orderOpen, 129900, Place{"Dock Road 31", "Antwerp", "2000", "BE"}},
		{"04", "pay_a4", "Customer 23", orderOpen, 4575, Place{"Garden Row 8", "Lyon", "69002", "FR"}},
		{"05", "pay_a5", "Linden Books", orderOpen, 61200, Place{"Linden Square 2", "Leipzig", "04109", "DE"}},
		{"06", "pay_a6", "Customer 31", orderOpen, 15990, Place{"Station Road 77", "Graz", "8020", "AT"}},
		{"07", "pay_a7", "Quarry Tools", orderOpen, 250000, Place{"Stone Street 19", "Turin", "10121", "IT"}},
		{"08", "pay_a8", "Customer 42", orderOpen, 3320, Place{"Hill Street 5", "Porto", "4000", "PT"}},
		{"09", "pay_a9", "Tulip Florists", orderShipped, 78400, Place{"Canal Side 23", "Delft", "2611", "NL"}},
		{"10", "pay_b1", "Customer 58", orderCancelled, 19900, Place{"Market Place 1", "Aarhus", "8000", "DK"}},
	} {
		order, address := "ord_10"+row.n, "adr_20"+row.n
		st.orders.put(order, Order{
			ID: order, Customer: row.customer, Status: row.status, Total: row.amount,
			Currency: currency, AddressID: address, Version: 1,
		})
		st.addresses.put(address, Address{ID: address, Customer: row.customer, Place: row.place, Version: 1})
		payment := Payment{
			ID: row.payment, Order: order, Customer: row.customer, Amount: row.amount,
			Currency: currency, Status: paymentCaptured,
		}
		if row.payment == "pay_b1" {
			payment.Status = paymentDisputed
		}
		st.payments.put(row.payment, payment.refunded(0))
	}
	return st
}
